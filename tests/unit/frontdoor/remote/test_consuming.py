"""A member of a group for a client that polls: commits, partitions that come and go, its end."""

import asyncio
from uuid import UUID

import pytest

from penstock.broker.doors import calls
from penstock.broker.doors.member_calls import BeatAsMember, CommitAsMember, Membership
from penstock.frontdoor.remote import consuming
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.consuming import Consumer, Consumers
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.reading import EARLIEST, Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.model.errors import Reason, Refused
from penstock.records.rows import Row
from tests.unit.frontdoor.remote.fake_broker import FakeBroker


class Group:
    """A coordinator that assigns what a test says, and the offsets that were committed."""

    def __init__(self, fake: FakeBroker) -> None:
        self.fake = fake
        self.epoch = 0
        self.assigned: list[int] = [0, 1]
        self.committed: dict[int, int] = {}
        self.refusals: list[Refused] = []
        fake.answers["BeatAsMember"] = self.beat
        fake.answers["CommitAsMember"] = self.commit
        fake.answers["ReadGroupOffsets"] = lambda _: calls.GroupOffsets(
            offsets=[
                calls.GroupOffset(topic="t", partition=partition, offset=offset)
                for partition, offset in self.committed.items()
            ]
        )

    @property
    def topic_id(self) -> UUID:
        return self.fake.topics["t"].topic_id

    def beat(self, call: BeatAsMember) -> Membership:
        if self.refusals:
            raise self.refusals.pop(0)
        if call.member_epoch == 0:
            self.epoch += 1
        return Membership(
            member_epoch=self.epoch,
            heartbeat_interval_ms=1_000_000,
            assignment=[(self.topic_id, self.assigned)],
        )

    def commit(self, call: CommitAsMember) -> calls.Done:
        if self.refusals:
            raise self.refusals.pop(0)
        self.committed |= {each.partition: each.offset for each in call.offsets}
        return calls.Done()


class Rig:
    def __init__(self) -> None:
        self.fake = FakeBroker()
        self.fake.topic("t", partitions=2)
        self.group = Group(self.fake)
        self.now_s = 0.0
        broker = Broker(self.fake)
        topics = Topics(broker, lambda: self.now_s)
        self.consumers = Consumers(broker, topics, Reader(broker), lambda: self.now_s)
        self.consumer: Consumer

    async def open(self) -> None:
        self.consumer = await self.consumers.create("g", ["t"], EARLIEST, 10_000)
        # No heartbeat but those that a poll causes.
        assert self.consumer.living is not None
        self.consumer.living.cancel()

    async def poll(
        self, limit: int = 100, *, commits: bool = True
    ) -> dict[int, list[bytes | None]]:
        found = await self.consumers.poll(self.consumer, limit, 0.0, commits=commits)
        return {each.partition: [one.value for one in each.records] for each in found}

    async def write(self, partition: int, *values: bytes) -> None:
        topic = self.fake.topics["t"]
        rows = [Row(None, value, (), 1) for value in values]
        await Publisher(Broker(self.fake)).submit(topic, partition, rows)()

    def owned(self) -> list[list[int]]:
        """What the member said that it has, each time it said so."""
        return [
            [partition for _, partitions in call.owned for partition in partitions]
            for call in self.fake.asked
            if isinstance(call, BeatAsMember) and call.owned is not None
        ]


async def opened() -> Rig:
    rig = Rig()
    await rig.write(0, b"a", b"b", b"c")
    await rig.write(1, b"x")
    await rig.open()
    return rig


async def test_a_poll_commits_what_the_last_one_delivered() -> None:
    rig = await opened()
    found = await rig.poll(3)
    assert sum(map(len, found.values())) == 3
    assert rig.group.committed == {}
    rest = await rig.poll()
    assert sum(map(len, rest.values())) == 1
    assert sum(rig.group.committed.values()) == 3
    assert await rig.poll(commits=False) == {}
    assert sum(rig.group.committed.values()) == 3
    await rig.consumers.commit(rig.consumer)
    assert rig.group.committed == {0: 3, 1: 1}
    commits = len(rig.fake.asked)
    await rig.consumers.commit(rig.consumer)
    assert len(rig.fake.asked) == commits


async def test_it_begins_at_the_committed_offsets() -> None:
    rig = await opened()
    rig.group.committed = {0: 2}
    assert await rig.poll() == {0: [b"c"], 1: [b"x"]}


async def test_a_partition_is_given_up_after_what_it_brought_was_committed() -> None:
    rig = await opened()
    await rig.poll()
    assert rig.owned() == [[], [0, 1]]
    rig.group.assigned = [1]
    await rig.consumers._beat(rig.consumer, None)
    assert rig.owned() == [[], [0, 1]]
    await rig.poll()
    assert rig.owned()[-1] == [1]
    assert rig.group.committed == {0: 3, 1: 1}
    assert rig.consumer.positions == {("t", 1): 1}


async def test_a_member_that_was_fenced_joins_again_and_commits_nothing() -> None:
    rig = await opened()
    await rig.poll()
    rig.group.refusals = [Refused(Reason.FENCED_MEMBER_EPOCH, "somebody else")]
    await rig.consumers._beat(rig.consumer, None)
    assert (rig.consumer.epoch, rig.consumer.uncommitted) == (2, {})
    assert await rig.poll() == {0: [b"a", b"b", b"c"], 1: [b"x"]}
    assert rig.group.committed == {}


async def test_a_commit_under_an_old_epoch_is_repeated_once() -> None:
    rig = await opened()
    await rig.poll()
    rig.group.refusals = [Refused(Reason.STALE_MEMBER_EPOCH, "it is 5 now")]
    await rig.consumers.commit(rig.consumer)
    assert rig.group.committed == {0: 3, 1: 1}


async def test_records_that_retention_removed_are_skipped() -> None:
    rig = await opened()
    rig.group.committed = {0: 99}
    assert await rig.poll() == {1: [b"x"]}
    assert await rig.poll() == {0: [b"a", b"b", b"c"]}


async def test_a_poll_waits_for_records_and_for_partitions() -> None:
    rig = await opened()
    rig.group.assigned = []
    await rig.consumers._beat(rig.consumer, None)
    polling = asyncio.ensure_future(rig.consumers.poll(rig.consumer, 10, 60.0, commits=True))
    await asyncio.sleep(0)
    rig.group.assigned = [1]
    await rig.consumers._beat(rig.consumer, None)
    assert [each.partition for each in await polling] == [1]
    polling = asyncio.ensure_future(rig.consumers.poll(rig.consumer, 10, 60.0, commits=True))
    await asyncio.sleep(0)
    await rig.write(1, b"y")
    assert [one.value for each in await polling for one in each.records] == [b"y"]


async def test_one_that_nobody_uses_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await opened()
    rig.now_s = 10.5
    await rig.consumers._live(rig.consumer, 0.0)
    assert rig.consumers.find("g", rig.consumer.id) is None
    (last,) = [call for call in rig.fake.asked if isinstance(call, BeatAsMember)][-1:]
    assert last.member_epoch == -1
    monkeypatch.setattr(consuming, "CONSUMERS_MAX", 0)
    with pytest.raises(Refused) as caught:
        await rig.open()
    assert caught.value.reason is Reason.THROTTLED
