"""Share groups in their coordinator: what waits for what, and who may have a name."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from penstock.groups import share_groups
from penstock.groups.commands import (
    ConsumerAnswer,
    Departure,
    Join,
    MemberProtocol,
    ShareHeartbeat,
    Sync,
)
from penstock.groups.modern_records import KeptQueues, QueuesRecord
from penstock.groups.records import GroupRecordCodec
from penstock.groups.share_group import ShareGroup
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId, TopicName
from tests.unit.groups import test_consumer_coordinator as consumers
from tests.unit.groups.test_consumer_coordinator import refusal, run
from tests.waiting import until

G = consumers.G
SESSION_MS = 45_000


@pytest.fixture(autouse=True)
def answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins hears of no partitions whose queues are still to be made."""
    monkeypatch.setattr(share_groups, "FIRST_ANSWER_S_MAX", 0.0)


class Rig(consumers.Rig):
    async def share(self, member_id: str, epoch: int, **fields: Any) -> ConsumerAnswer:
        command = ShareHeartbeat(
            group_id=G, member_id=MemberId(member_id), member_epoch=epoch, client_id="c", **fields
        )
        return await self.coordinator.share_heartbeat(command)

    async def share_join(self, member_id: str, *topics: str) -> ConsumerAnswer:
        return await self.share(member_id, 0, topics=frozenset(topics or ("t",)))

    async def ready(self, member_id: str = "a") -> ConsumerAnswer:
        """A member that has all partitions."""
        joined = await self.share_join(member_id)
        await until(lambda: self.group.queues.initialized)
        await until(lambda: not self.is_at_work)
        return await self.share(member_id, joined.member_epoch)

    @property
    def group(self) -> ShareGroup:
        group = self.host.state.share(G)
        assert group is not None
        return group

    @property
    def is_at_work(self) -> bool:
        return bool(self.coordinator._shares._jobs)

    @property
    def topic(self) -> UUID:
        return self.catalog.topics["t"].topic_id

    def stored_queues(self) -> list[KeptQueues | None]:
        records = (GroupRecordCodec().decode(*each) for each in self.host.log)
        return [record.value for record in records if isinstance(record, QueuesRecord)]


# Queues


def test_partitions_follow_once_their_queues_are_durable() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.may_answer.clear()
        joined = await rig.share_join("a")
        assert joined.assignment == {}
        await until(lambda: rig.queues.made)
        # What was asked for is stored before, so that a deletion finds it.
        assert [each and each.initializing.keys() for each in rig.stored_queues()] == [{rig.topic}]
        assert (await rig.share("a", joined.member_epoch)).assignment is None
        rig.queues.may_answer.set()
        await until(lambda: not rig.is_at_work)
        answer = await rig.share("a", joined.member_epoch)
        assert answer.assignment == {rig.topic: frozenset(range(4))}
        assert rig.queues.made == [(G, {rig.topic: dict.fromkeys(range(4), -1)})]

    run(scenario)


def test_the_answer_to_a_join_waits_for_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members ask again only seconds later."""
    monkeypatch.setattr(share_groups, "FIRST_ANSWER_S_MAX", 20.0)

    async def scenario() -> None:
        rig = Rig()
        rig.catalog.make("u", 1)
        everything = {rig.topic: frozenset(range(4))}
        rig.queues.may_answer.clear()
        joining = asyncio.create_task(rig.share_join("a"))
        await until(lambda: rig.queues.made)
        assert not joining.done()
        rig.queues.may_answer.set()
        joined = await joining
        assert joined.assignment == everything
        beat = await rig.share("a", joined.member_epoch)
        assert (beat.assignment, beat.member_epoch) == (None, joined.member_epoch)
        # So does one that reads another topic from now on.
        more = await rig.share("a", joined.member_epoch, topics=frozenset({"t", "u"}))
        other = rig.catalog.topics["u"].topic_id
        assert more.assignment == {**everything, other: frozenset({0})}

    run(scenario)


def test_an_answer_that_waits_for_queues_does_not_bring_a_member_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_groups, "FIRST_ANSWER_S_MAX", 20.0)

    async def scenario() -> None:
        rig = Rig()
        rig.queues.may_answer.clear()
        joining = asyncio.create_task(rig.share_join("a"))
        await until(lambda: rig.queues.made)
        await rig.share("a", -1)
        rig.queues.may_answer.set()
        assert (await joining).assignment == {}
        assert rig.group.is_empty

    run(scenario)


def test_a_member_is_not_told_of_queues_whose_record_is_not_stored() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.may_answer.clear()
        joined = await rig.share_join("a")
        await until(lambda: rig.queues.made)
        rig.host.held = asyncio.Event()
        rig.queues.may_answer.set()
        await until(lambda: rig.group.queues.initialized)
        beat = asyncio.create_task(rig.share("a", joined.member_epoch))
        assert (await asyncio.wait({beat}, timeout=0.05))[1] == {beat}
        rig.host.held.set()
        assert (await beat).assignment is None
        await until(lambda: not rig.is_at_work)
        answer = await rig.share("a", joined.member_epoch)
        assert answer.assignment == {rig.topic: frozenset(range(4))}

    run(scenario)


def test_queues_that_could_not_be_made_are_asked_for_with_the_next_heartbeat() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.refusal = Refused(Reason.COORDINATOR_NOT_AVAILABLE)
        joined = await rig.share_join("a")
        await until(lambda: rig.queues.made and not rig.is_at_work)
        rig.queues.refusal = None
        assert (await rig.share("a", joined.member_epoch)).assignment is None
        await until(lambda: rig.group.queues.initialized and not rig.is_at_work)
        answer = await rig.share("a", joined.member_epoch)
        assert answer.assignment == {rig.topic: frozenset(range(4))}

    run(scenario)


def test_who_does_not_answer_about_queues_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        rig = Rig()
        monkeypatch.setattr(share_groups, "INITIALIZE_S_MAX", 0.01)
        rig.queues.may_answer.clear()
        joined = await rig.share_join("a")
        await until(lambda: rig.queues.made and not rig.is_at_work)
        rig.queues.may_answer.set()
        await rig.share("a", joined.member_epoch)
        await until(lambda: rig.group.queues.initialized)

    run(scenario)


def test_topics_that_are_wanted_meanwhile_follow_without_another_heartbeat() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.catalog.make("u", 1)
        rig.queues.may_answer.clear()
        await rig.share_join("a")
        await until(lambda: rig.queues.made)
        await rig.share_join("b", "u")
        rig.queues.may_answer.set()
        await until(lambda: not rig.is_at_work)
        assert len(rig.queues.made) == 2
        assert len(rig.group.queues.initialized) == 2

    run(scenario)


def test_added_partitions_start_at_their_beginning() -> None:
    async def scenario() -> None:
        rig = Rig()
        before = await rig.ready()
        rig.catalog.grow("t", 6)
        rig.coordinator.topic_changed("t")
        await rig.share("a", before.member_epoch)
        await until(lambda: len(rig.queues.made) == 2 and not rig.is_at_work)
        assert rig.queues.made[1] == (G, {rig.topic: {4: 0, 5: 0}})
        answer = await rig.share("a", before.member_epoch)
        assert answer.assignment == {rig.topic: frozenset(range(6))}

    run(scenario)


def test_the_next_coordinator_goes_on_with_what_was_asked_for() -> None:
    async def scenario() -> None:
        first = Rig()
        first.queues.may_answer.clear()
        joined = await first.share_join("a")
        await until(lambda: first.queues.made)
        rig = first.next()
        await rig.share("a", joined.member_epoch)
        await until(lambda: rig.group.queues.initialized and not rig.is_at_work)
        answer = await rig.share("a", joined.member_epoch)
        assert answer.assignment == {rig.topic: frozenset(range(4))}
        await first.coordinator.close()

    run(scenario)


def test_work_that_had_not_begun_is_begun_again_by_the_next_leadership() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.may_answer.clear()
        joined = await rig.share_join("a")
        rig.coordinator._become_inactive()
        rig.queues.made.clear()
        rig.queues.may_answer.set()
        rig.coordinator._become_active()
        await rig.share("a", joined.member_epoch)
        await until(lambda: rig.group.queues.initialized)

    run(scenario)


def test_work_on_queues_ends_with_the_leadership() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.may_answer.clear()
        await rig.share_join("a")
        await until(lambda: rig.queues.made)
        await rig.coordinator.close()
        await until(lambda: not rig.is_at_work)

    run(scenario)


def test_a_deleted_topic_is_forgotten_by_its_id() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.coordinator.remove_queues(lambda topic_id: topic_id != rig.topic)
        assert rig.group.queues.initialized.keys() == {rig.topic}
        await rig.coordinator.remove_queues(lambda topic_id: topic_id == rig.topic)
        assert rig.group.queues == KeptQueues()

    run(scenario)


# Time


def test_a_silent_member_is_out_after_its_session() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        epoch = (await rig.share_join("b")).member_epoch
        rig.pass_time(SESSION_MS - 1)
        await rig.share("b", epoch)
        rig.pass_time(2)
        assert rig.group.profiles.keys() == {"b"}
        answer = await rig.share("b", epoch)
        assert answer.assignment == {rig.topic: frozenset(range(4))}
        assert await refusal(rig.share("a", epoch)) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_members_have_a_whole_session_with_the_next_coordinator() -> None:
    async def scenario() -> None:
        first = Rig()
        epoch = (await first.ready()).member_epoch
        rig = first.next()
        rig.pass_time(SESSION_MS - 1)
        await rig.share("a", epoch)
        rig.pass_time(SESSION_MS - 1)
        assert rig.group.profiles
        rig.pass_time(2)
        assert not rig.group.profiles

    run(scenario)


def test_an_empty_share_group_does_not_expire() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.share("a", -1)
        rig.clock.ms += 10 * 24 * 3600 * 1000
        await rig.coordinator.expire()
        assert rig.group.is_empty
        assert rig.group.queues.initialized

    run(scenario)


# Leases of those who are gone


def test_who_leaves_or_is_out_of_time_loses_its_leases() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        for member_id in "bcde":
            await rig.share_join(member_id)
        await rig.share("a", -1)
        await until(lambda: rig.queues.gone == [(G, {"a"})])
        rig.queues.may_answer.clear()
        await rig.share("b", -1)
        await until(lambda: len(rig.queues.gone) == 2)
        rig.pass_time(SESSION_MS + 1)
        rig.queues.may_answer.set()
        await until(lambda: len(rig.queues.gone) == 3 and not rig.coordinator._shares._releases)
        assert rig.queues.gone[1:] == [(G, {"b"}), (G, {"c", "d", "e"})], "one call for many"

    run(scenario)


def test_leases_end_once_the_departure_is_stored_and_not_if_the_member_is_back() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        rig.host.held = asyncio.Event()
        leaving = asyncio.create_task(rig.share("a", -1))
        await until(lambda: not rig.group.profiles)
        assert rig.queues.gone == []
        joining = asyncio.create_task(rig.share_join("a"))
        await until(lambda: rig.group.profiles)
        rig.host.held.set()
        await asyncio.gather(leaving, joining)
        await until(lambda: not rig.coordinator._shares._releases)
        assert rig.queues.gone == []

    run(scenario)


# One name, one group


def test_any_other_group_keeps_its_name() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.commit("", -1, 0)
        assert await refusal(rig.share_join("a")) is Reason.GROUP_ID_NOT_FOUND
        rig = Rig()
        await rig.join("c")
        assert await refusal(rig.share_join("a")) is Reason.GROUP_ID_NOT_FOUND
        await rig.heartbeat("c", -1)
        assert await refusal(rig.share_join("a")) is Reason.GROUP_ID_NOT_FOUND
        rig = Rig()
        await rig.classic_member()
        assert await refusal(rig.share_join("a")) is Reason.GROUP_ID_NOT_FOUND
        assert await rig.coordinator.describe_share(G) is None

    run(scenario)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_share_group_keeps_its_name(is_empty: bool) -> None:
    async def scenario() -> None:
        rig = Rig()
        epoch = (await rig.ready()).member_epoch
        if is_empty:
            await rig.share("a", -1)
        not_found = Reason.GROUP_ID_NOT_FOUND
        assert await refusal(rig.join("c")) is not_found
        assert await refusal(rig.commit("", -1, 0)) is not_found
        assert await refusal(rig.commit("a", epoch, 0)) is not_found
        wanted = [(TopicName("t"), 0)]
        assert await refusal(rig.coordinator.remove_offsets(G, wanted)) is not_found
        assert await rig.committed() is None
        assert await rig.committed(member_id=MemberId("a"), member_epoch=epoch) is None
        protocols = (MemberProtocol("range", b""),)
        join = Join(
            group_id=G,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        refused = (await rig.coordinator.join(join)).refused
        assert refused is Reason.INCONSISTENT_GROUP_PROTOCOL
        assert await rig.coordinator.describe(G) is None
        assert await rig.coordinator.describe_consumer(G) is None

    run(scenario)


def test_share_groups_are_listed_with_their_type() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        (group,) = await rig.coordinator.list_groups()
        assert (group.group_type, group.protocol_type, group.state) == ("share", "share", "Stable")
        await rig.share("a", -1)
        (group,) = await rig.coordinator.list_groups()
        assert group.state == "Empty"
        described = await rig.coordinator.describe_share(G)
        assert described is not None
        assert (described.state, described.assignor) == ("Empty", "simple")

    run(scenario)


# Deleting


def test_the_queues_of_a_group_are_deleted_before_it() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        assert await rig.coordinator.remove_groups([G]) == [Reason.NON_EMPTY_GROUP]
        await rig.share("a", -1)
        rig.queues.may_answer.clear()
        removal = asyncio.create_task(rig.coordinator.remove_groups([G]))
        await until(lambda: rig.queues.deleted)
        assert rig.group.queues == KeptQueues(deleting={rig.topic: "t"})
        rig.queues.may_answer.set()
        assert await removal == [None]
        assert not rig.host.state.exists(G)
        assert await rig.coordinator.remove_groups([G]) == [Reason.GROUP_ID_NOT_FOUND]

    run(scenario)


def test_a_group_whose_queues_can_not_be_deleted_stays() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.share("a", -1)
        rig.queues.refusal = Refused(Reason.NON_EMPTY_GROUP, "records are leased")
        assert await rig.coordinator.remove_groups([G]) == [Reason.NON_EMPTY_GROUP]
        assert rig.group.queues.deleting
        rig.queues.refusal = None
        assert await rig.coordinator.remove_groups([G]) == [None]
        assert len(rig.queues.deleted) == 2

    run(scenario)


def test_who_joins_while_the_queues_are_deleted_gets_new_ones() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.share("a", -1)
        rig.queues.may_answer.clear()
        removal = asyncio.create_task(rig.coordinator.remove_groups([G]))
        await until(lambda: rig.queues.deleted)
        await rig.share_join("b")
        assert len(rig.queues.made) == 1, "queues were made while they were deleted"
        rig.queues.may_answer.set()
        assert await removal == [Reason.NON_EMPTY_GROUP]
        await until(lambda: rig.group.queues.initialized)
        assert len(rig.queues.made) == 2

    run(scenario)


def test_a_group_of_each_type_is_deleted_at_once() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.share("a", -1)
        other, third = GroupId("classic"), GroupId("nobody")
        await rig.coordinator.commit(_offset_of(other))
        outcomes = await rig.coordinator.remove_groups([other, G, third])
        assert outcomes == [None, None, Reason.GROUP_ID_NOT_FOUND]
        assert list(rig.host.state.group_ids()) == []

    run(scenario)


def _offset_of(group_id: GroupId) -> consumers.CommitOffsets:
    offset = consumers.OffsetToCommit(TopicName("t"), 0, 7)
    return consumers.CommitOffsets(group_id=group_id, offsets=(offset,))


# Offsets


def test_queues_of_a_group_without_members_are_moved() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        shares = await rig.coordinator.share_groups(G)
        place = (TopicId(rig.topic), 1)
        assert await refusal(shares.alter_offsets(G, {place: 7})) is Reason.NON_EMPTY_GROUP
        await rig.share("a", -1)
        assert await shares.alter_offsets(G, {place: 7}) == {place: None}
        assert rig.queues.altered == [{place: 7}]
        assert len(rig.queues.made) == 1, "they were there"

    run(scenario)


def test_a_group_whose_queue_is_moved_is_made_with_all_queues_of_the_topic() -> None:
    async def scenario() -> None:
        rig = Rig()
        shares = await rig.coordinator.share_groups(G)
        place = (TopicId(rig.topic), 1)
        assert await shares.alter_offsets(G, {place: 7}) == {place: None}
        partitions = rig.catalog.topics["t"].partitions
        by_setting = dict.fromkeys(range(partitions), -1)
        assert rig.queues.made == [(G, {rig.topic: by_setting})]
        assert rig.group.is_empty
        kept = rig.group.queues.initialized[rig.topic].partitions
        assert kept == frozenset(range(partitions))

    run(scenario)


def test_queues_that_can_not_be_made_are_not_moved() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.queues.refusal = Refused(Reason.COORDINATOR_NOT_AVAILABLE)
        shares = await rig.coordinator.share_groups(G)
        alter = shares.alter_offsets(G, {(TopicId(rig.topic), 0): 7})
        assert await refusal(alter) is Reason.COORDINATOR_NOT_AVAILABLE
        assert rig.queues.altered == []

    run(scenario)


def test_a_group_without_members_forgets_a_topic() -> None:
    async def scenario() -> None:
        rig = Rig()
        shares = await rig.coordinator.share_groups(G)
        topic, other = TopicId(rig.topic), TopicId(UUID(int=99))
        assert await refusal(shares.delete_offsets(G, [topic])) is Reason.GROUP_ID_NOT_FOUND
        await rig.ready()
        assert await refusal(shares.delete_offsets(G, [topic])) is Reason.NON_EMPTY_GROUP
        await rig.share("a", -1)
        outcomes = await shares.delete_offsets(G, [topic, other])
        assert outcomes[topic] is None
        unknown = outcomes[other]
        assert unknown is not None
        assert unknown.reason is Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.group.queues == KeptQueues()
        await rig.share_join("a")
        await until(lambda: rig.group.queues.initialized)
        assert len(rig.queues.made) == 2, "the next member gets a new queue"

    run(scenario)


def test_a_topic_that_can_not_be_forgotten_is_noted_until_it_is() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready()
        await rig.share("a", -1)
        shares = await rig.coordinator.share_groups(G)
        topic = TopicId(rig.topic)
        rig.queues.refusal = Refused(Reason.NON_EMPTY_GROUP, "records are leased")
        assert (await shares.delete_offsets(G, [topic]))[topic] is rig.queues.refusal
        assert rig.group.queues == KeptQueues(deleting={rig.topic: "t"})
        rig.queues.refusal = None
        assert await shares.delete_offsets(G, [topic]) == {topic: None}
        assert rig.group.queues == KeptQueues()

    run(scenario)


def test_a_group_of_another_type_has_no_queues() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        assert await refusal(rig.coordinator.share_groups(G)) is Reason.GROUP_ID_NOT_FOUND

    run(scenario)


def test_requests_of_the_classic_protocol_do_not_reach_members_of_a_share_group() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.ready("a")
        member = MemberId("a")
        assert await rig.coordinator.leave(G, [Departure(member, None)]) == [
            Reason.UNKNOWN_MEMBER_ID
        ]
        synced = await rig.coordinator.sync(
            Sync(group_id=G, member_id=member, generation=1, assignments={})
        )
        assert synced.refused is Reason.UNKNOWN_MEMBER_ID
        with pytest.raises(Refused) as refused:
            rig.coordinator.heartbeat(G, member, None, 1)
        assert refused.value.reason is Reason.UNKNOWN_MEMBER_ID
        assert member in rig.group.profiles

    run(scenario)
