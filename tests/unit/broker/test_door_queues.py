"""Proves that queues work through doors: by lease tokens, on whichever node leads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.doors import PASSED_ON, calls, queue_calls
from penstock.broker.doors.calls import Call
from penstock.broker.doors.desk import Desk
from penstock.broker.doors.queue_leaders import settle_partitions
from penstock.broker.doors.table import make_desk
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.queueing import Message, Queueing, TokenOutcome
from penstock.groups.classic_member import MemberProtocol
from penstock.groups.commands import CommitOffsets, ConsumerHeartbeat, Join, OffsetToCommit
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, MemberId, TopicName
from penstock.model.lease_tokens import TOKEN_LENGTH, read_token
from penstock.queues.commands import RecordState
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.unit.broker.queue_rig import EARLIEST, TOPIC, QueueNode, turns
from tests.unit.lone_node import NODE

OTHER = BrokerId(7)
G = "workers"


class Peers:
    """Brings calls of a second node's desk to the first."""

    def __init__(self) -> None:
        self.desk: Desk | None = None
        self.lost: list[str] = []

    def serve(self, method: str, handler: Any) -> None: ...

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        assert (node, method) == (NODE, PASSED_ON)
        assert self.desk is not None
        # As between nodes: an answer that nobody waits for does not end the work.
        answering = asyncio.ensure_future(self.desk.serve_passed_on(payload))
        answer = await asyncio.shield(answering)
        name = payload[1 : 1 + payload[0]].decode()
        if name in self.lost:
            self.lost.remove(name)
            raise Refused(Reason.REQUEST_TIMED_OUT, "the connection was lost")
        return answer


class Channel:
    """To the desk of a broker, as from the process of the doors."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def call(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        return await self._desk.serve(method, payload)


class Rig:
    def __init__(self, node: QueueNode) -> None:
        self.node = node
        self.peers = Peers()
        self.desk = self.peers.desk = make_desk(NODE, node.services, self.peers)
        # Another node, which leads nothing.
        self.other = make_desk(OTHER, node.services, self.peers)
        self.queueing = Queueing(Broker(Channel(self.desk)))
        self.from_other = Queueing(Broker(Channel(self.other)))

    async def poll(self, records_max: int = 10, **options: Any) -> list[Message]:
        asked = self.queueing.poll(TOPIC, G, records_max=records_max, **options)
        return (await asked).messages

    def machine(self, partition: int = 0) -> Any:
        return self.node.queues.lead(GroupId(G), self.node.topic_id, partition).machine

    async def outcomes(self, verb: str, *tokens: str, **options: Any) -> list[str]:
        found = await getattr(self.queueing, verb)(TOPIC, G, list(tokens), **options)
        return [each.outcome for each in found]


@asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[Rig]:
    node = await QueueNode.begin(path, **options)
    # What the rig made for members of Kafka's protocol is not of these tests.
    await node.queues.delete_offsets(GroupId(G), [node.topic_id])
    await node.set_group()
    try:
        yield Rig(node)
    finally:
        await node.stop()


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.record.value for message in messages]


async def test_messages_are_leased_and_acked_by_token(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a", b"b", b"c")
        # Nobody joined the group, and it begins with the earliest record all the same.
        first, second = await rig.poll(2)
        assert values([first, second]) == [b"a", b"b"]
        assert (first.attempt, first.partition, len(first.token)) == (1, 0, TOKEN_LENGTH)
        assert values(await rig.poll()) == [b"c"]
        assert await rig.outcomes("ack", first.token, second.token) == ["ok", "ok"]
        assert await rig.outcomes("ack", first.token) == ["done"]
        assert rig.machine().start == 2


async def test_a_token_is_good_for_one_record_and_one_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a", b"b")
        one, two = await rig.poll()
        token = read_token(one.token)
        assert token is not None
        forged = [
            str(token._replace(offset=1)),
            str(token._replace(attempt=2)),
            str(token._replace(attempt=0)),
            str(token._replace(partition=5)),
            str(token._replace(proof=bytes(12))),
            "no token",
            one.token[:-1] + "é",
        ]
        expected = ["unknown", "unknown", "expired", "unknown", "unknown", "malformed", "malformed"]
        assert await rig.outcomes("ack", *forged) == expected
        assert rig.machine().leased_count == 2
        elsewhere = await rig.queueing.ack(TOPIC, "others", [one.token])
        assert [each.outcome for each in elsewhere] == ["unknown"]
        assert elsewhere[0].detail.startswith("This queue")
        await rig.node.create("elsewhere", partitions=1)
        foreign = await rig.queueing.ack("elsewhere", G, [one.token])
        assert [each.outcome for each in foreign] == ["unknown"]
        # One bad token does not spoil the others.
        assert await rig.outcomes("ack", forged[0], two.token) == ["unknown", "ok"]


async def test_a_message_is_given_back_at_once_or_later(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a")
        (one,) = await rig.poll()
        assert await rig.outcomes("nack", one.token) == ["ok"]
        assert await rig.outcomes("nack", one.token) == ["expired"]
        (two,) = await rig.poll()
        assert two.attempt == 2
        assert await rig.outcomes("ack", one.token) == ["expired"]
        assert await rig.outcomes("nack", two.token, delay_ms=3_600_000) == ["ok"]
        assert await rig.poll() == []
        (delayed,) = rig.machine().ranges()
        assert delayed.state is RecordState.DELAYED
        wait_ms = delayed.due_ms - rig.node.services.clock.now_ms()
        assert 3_590_000 < wait_ms <= 3_600_000


async def test_leases_have_the_time_that_the_poll_asks_for(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a")
        polled = await rig.queueing.poll(TOPIC, G, records_max=1, lease_ms=5_000)
        assert polled.lease_ms == 5_000
        (lease,) = rig.machine().leases()
        assert lease.lease_ms == 5_000
        token = polled.messages[0].token
        assert await rig.outcomes("extend", token, lease_ms=7_200_000) == ["ok"]
        (lease,) = rig.machine().leases()
        assert (lease.lease_ms, lease.attempts) == (7_200_000, 1)
        (again,) = await rig.queueing.extend(TOPIC, G, [token])
        (lease,) = rig.machine().leases()
        setting_ms = rig.node.queues.lock_duration_ms(GroupId(G))
        assert again.lease_ms == lease.lease_ms == setting_ms
        assert await rig.outcomes("reject", token) == ["ok"]
        assert await rig.queueing.extend(TOPIC, G, [token]) == [TokenOutcome(token, "done")]
        for wrong in (999, 12 * 3_600_000 + 1):
            with pytest.raises(Refused, match="lease_ms"):
                await rig.poll(lease_ms=wrong)


async def test_a_leader_that_nobody_confirms_extends_nothing(tmp_path: Path) -> None:
    """Another one may have given the message to somebody else."""

    async def confirm() -> None:
        raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "somebody else leads")

    async with running(tmp_path) as rig:
        await rig.node.send(b"a")
        polled = await rig.queueing.poll(TOPIC, G, records_max=1, lease_ms=5_000)
        token = read_token(polled.messages[0].token)
        assert token is not None
        claim = queue_calls.Claim(
            partition=token.partition,
            offset=token.offset,
            attempt=token.attempt,
            proof=token.proof,
        )

        async def extend(lease_ms: int) -> Sequence[str]:
            call = queue_calls.SettlePartitions(
                topic_id=rig.node.topic_id,
                group=G,
                verb="extend",
                claims=[claim],
                lease_ms=lease_ms,
                delay_ms=None,
            )
            return (await settle_partitions(rig.desk, call)).outcomes

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(Replica, "confirm", lambda _: confirm())
            assert await extend(5_000) == ["unavailable"]
            assert await extend(6_000) == ["ok"], "what is stored was confirmed by that"
        assert await extend(6_000) == ["ok"]


async def test_a_poll_waits_for_the_first_message(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=3) as rig:
        waiting = asyncio.ensure_future(rig.poll(wait_s=30.0))
        await turns(50)
        assert not waiting.done()
        await rig.node.send(b"a", partition=2)
        assert values(await waiting) == [b"a"]


async def test_a_poll_that_is_cut_off_leaves_nothing_leased(tmp_path: Path) -> None:
    """Whether it waits, has just leased, or is answered already: and no attempt counts."""
    async with running(tmp_path) as rig:
        for queueing in (rig.queueing, rig.from_other):
            for steps in range(0, 60, 3):
                poll = asyncio.ensure_future(queueing.poll(TOPIC, G, records_max=1, wait_s=30.0))
                await turns(steps)
                sending = asyncio.ensure_future(rig.node.send(b"x"))
                await turns(steps // 2)
                poll.cancel()
                await sending
                (answer,) = await asyncio.gather(poll, return_exceptions=True)
                if not isinstance(answer, BaseException):
                    # Answered before it was cut off.
                    await rig.queueing.undo(TOPIC, G, [each.token for each in answer.messages])
        # The first of them may be cut off while the queue is made, and the last gives back later.
        left: list[Message] = []
        while len(left) < 40:
            left += await rig.poll(100, wait_s=30.0)
        assert [message.attempt for message in left] == [1] * 40


async def test_any_node_can_be_asked(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=2) as rig:
        queueing = rig.from_other
        waiting = asyncio.ensure_future(queueing.poll(TOPIC, G, records_max=5, wait_s=30.0))
        await turns(50)
        await rig.node.send(b"a", partition=1)
        (message,) = (await waiting).messages
        assert (message.partition, message.record.value) == (1, b"a")
        # The leader has done it, and its answer is lost.
        rig.peers.lost = ["SettlePartitions"]
        (outcome,) = await queueing.ack(TOPIC, G, [message.token])
        assert outcome.is_ok
        assert (await queueing.stats(TOPIC, G)).oldest_age_ms == -1


async def test_a_lost_answer_of_a_poll_is_undone(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a")
        rig.peers.lost = ["PollPartitions"]
        polled = await rig.from_other.poll(TOPIC, G, records_max=5, wait_s=30.0)
        assert [(each.record.value, each.attempt) for each in polled.messages] == [(b"a", 1)]


async def test_polls_begin_with_another_partition_each_time(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=3) as rig:
        for partition in range(3):
            await rig.node.send(b"a", b"b", partition=partition)
        found = [(await rig.poll(1))[0].partition for _ in range(6)]
        assert sorted(found[:3]) == sorted(found[3:]) == [0, 1, 2]


async def test_a_queue_is_looked_at_without_leasing(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=2) as rig:
        await rig.node.send(b"a", b"b", b"c")
        with pytest.raises(Refused) as caught:
            await rig.queueing.peek(TOPIC, G, records_max=5)
        assert caught.value.reason is Reason.GROUP_ID_NOT_FOUND
        with pytest.raises(Refused, match="Nobody has polled topic jobs for group 'workers' yet"):
            await rig.queueing.stats(TOPIC, G)
        (one,) = await rig.poll(1)
        peeked = await rig.queueing.peek(TOPIC, G, records_max=5)
        assert [(each.record.value, each.attempt) for each in peeked] == [(b"b", 0), (b"c", 0)]
        assert len(await rig.queueing.peek(TOPIC, G, records_max=1)) == 1
        await rig.outcomes("nack", one.token)
        assert (await rig.queueing.peek(TOPIC, G, records_max=1))[0].attempt == 1
        (two,) = await rig.poll(1)
        await rig.outcomes("nack", two.token, delay_ms=60_000)
        await rig.poll(1)
        stats = await rig.queueing.stats(TOPIC, G)
        first, second = stats.partitions
        assert (first.ready, first.leased, first.delayed, first.dead) == (1, 1, 1, 0)
        assert (second.ready, second.leased, second.oldest_ms) == (0, 0, -1)
        assert stats.oldest_age_ms > 0
        assert not stats.is_paused


async def test_partitions_that_nobody_polled_yet_are_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.poll()
        await rig.desk.serve("GrowTopic", calls.encode(calls.GrowTopic(name=TOPIC, partitions=2)))
        assert [each.partition for each in (await rig.queueing.stats(TOPIC, G)).partitions] == [0]
        assert await rig.queueing.peek(TOPIC, G, records_max=1) == []
        await rig.poll()
        assert len((await rig.queueing.stats(TOPIC, G)).partitions) == 2


async def test_a_purge_leaves_only_what_is_leased(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a", b"b", b"c")
        one, two = await rig.poll(2)
        await rig.outcomes("nack", two.token, delay_ms=60_000)
        assert await rig.queueing.purge(TOPIC, G) == 2
        assert await rig.queueing.purge(TOPIC, G) == 0
        await rig.node.send(b"d")
        assert values(await rig.poll()) == [b"d"]
        assert await rig.outcomes("nack", one.token) == ["ok"]
        assert values(await rig.poll()) == [b"a"]
        with pytest.raises(Refused):
            await rig.queueing.purge(TOPIC, G, [1])


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.send(b"a")
        (one,) = await rig.poll()
        await rig.node.send(b"b")
        await rig.queueing.pause(TOPIC, G)
        await rig.queueing.pause(TOPIC, G)
        assert (await rig.queueing.stats(TOPIC, G)).is_paused
        assert await rig.poll() == []
        assert await rig.outcomes("ack", one.token) == ["ok"]
        waiting = asyncio.ensure_future(rig.poll(wait_s=30.0))
        await turns(50)
        assert not waiting.done()
        await rig.queueing.resume(TOPIC, G)
        assert values(await waiting) == [b"b"]
        assert rig.node.cluster.group_configs.get(G) is None


async def test_records_expire_by_header_and_by_setting(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        expiry = {"penstock.queue.expiry.enable": "true", "penstock.queue.expiry.ms": "60000"}
        await rig.node.set_group(GroupId(G), **expiry)
        now_ms = rig.node.services.clock.now_ms()
        hour_ago = now_ms - 3_600_000

        def record(value: bytes, timestamp_ms: int, after: bytes | None = None) -> Record:
            headers = () if after is None else (("penstock.expire.after", after),)
            return Record(value=value, timestamp_ms=timestamp_ms, headers=headers)

        await rig.node.send_records(record(b"old", hour_ago), record(b"new", now_ms))
        await rig.node.send_records(record(b"all old", hour_ago))
        await rig.node.send_records(
            record(b"long", hour_ago, b"PT2H"),
            record(b"short", now_ms - 10, b"5"),
            record(b"wrong", now_ms, b"soon"),
            record(b"wrong and old", hour_ago, b"soon"),
        )
        found: list[bytes | None] = []
        while messages := await rig.poll(1):
            found += values(messages)
        assert found == [b"new", b"long", b"wrong"]
        (partition,) = (await rig.queueing.stats(TOPIC, G)).partitions
        assert (partition.expired, partition.leased, partition.ready) == (4, 3, 0)


async def test_a_group_that_sets_its_start_is_followed(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.set_group(GroupId("late"), **{"share.auto.offset.reset": "latest"})
        await rig.node.send(b"a")
        late = await rig.queueing.poll(TOPIC, "late", records_max=5)
        assert late.messages == []
        await rig.node.set_group(GroupId("early"), **EARLIEST)
        early = await rig.queueing.poll(TOPIC, "early", records_max=5)
        assert values(early.messages) == [b"a"]


async def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:

        async def reason(call: Call[Any]) -> Reason:
            with pytest.raises(Refused) as caught:
                await rig.desk.serve(type(call).__name__, calls.encode(call))
            return caught.value.reason

        poll = queue_calls.PollQueue(topic="none", group=G, records_max=1)
        assert await reason(poll) is Reason.UNKNOWN_TOPIC_OR_PARTITION
        poll = queue_calls.PollQueue(topic=TOPIC, group="", records_max=1)
        assert await reason(poll) is Reason.INVALID_GROUP_ID
        poll = queue_calls.PollQueue(topic=TOPIC, group=G, records_max=0)
        assert await reason(poll) is Reason.INVALID_REQUEST
        settle = queue_calls.SettleLeases(topic=TOPIC, group=G, verb="eat", claims=[])
        assert await reason(settle) is Reason.INVALID_REQUEST
        redrive = queue_calls.RedriveQueue(topic=TOPIC, group=G, limit=10)
        assert await reason(redrive) is Reason.INVALID_REQUEST


async def test_many_tokens_are_settled_by_several_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.set_group(GroupId(G), **{"share.partition.max.record.locks": "3000"})
        count = queue_calls.CLAIMS_PER_CALL_MAX + 200
        await rig.node.send_records(*(Record(value=b"x", timestamp_ms=1) for _ in range(count)))
        messages = await rig.poll(count)
        assert len(messages) == count
        outcomes = await rig.outcomes("ack", *(each.token for each in reversed(messages)))
        assert outcomes == ["ok"] * count
        assert rig.machine().start == count


# Groups


async def test_a_group_that_only_doors_use_is_a_share_group_like_others(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        groups = rig.node.services.groups
        await rig.node.send(b"a")
        (message,) = await rig.poll()
        (found,) = await groups.list_groups()
        assert (found.group_id, found.group_type, found.state) == (G, "share", "Empty")
        # Its name is taken, for every other kind of group.
        joined = await groups.join(
            Join(
                group_id=GroupId(G),
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(MemberProtocol("range", b""),),
            )
        )
        assert joined.refused is Reason.INCONSISTENT_GROUP_PROTOCOL
        with pytest.raises(Refused) as refused:
            await groups.consumer_heartbeat(
                ConsumerHeartbeat(
                    group_id=GroupId(G),
                    member_id=MemberId("m"),
                    member_epoch=0,
                    rebalance_timeout_ms=1000,
                    topics=frozenset([TOPIC]),
                    owned={},
                )
            )
        assert refused.value.reason is Reason.GROUP_ID_NOT_FOUND
        # It is deleted with its queues, once nothing is leased.
        assert await groups.delete([GroupId(G)]) == [Reason.NON_EMPTY_GROUP]
        assert await rig.outcomes("ack", message.token) == ["ok"]
        assert await groups.delete([GroupId(G)]) == [None]
        assert await groups.list_groups() == []
        # Who polls makes it again, from the earliest record on.
        assert values(await rig.poll()) == [b"a"]


async def test_a_poll_for_a_group_of_another_type_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        offset = OffsetToCommit(TopicName(TOPIC), 0, 1)
        command = CommitOffsets(group_id=GroupId(G), offsets=(offset,))
        assert await rig.node.services.groups.commit_offsets(command) == [None]
        await rig.node.send(b"a")
        for queueing in (rig.queueing, rig.from_other):
            with pytest.raises(Refused, match="is not a share group") as refused:
                await queueing.poll(TOPIC, G, records_max=1)
            assert refused.value.reason is Reason.GROUP_ID_NOT_FOUND
        assert await rig.node.queues.topics_of(GroupId(G)) == set()
