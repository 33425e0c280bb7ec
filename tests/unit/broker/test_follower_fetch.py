"""Proves how consumers read from followers (KIP-392): who is sent there, and what they see."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from penstock.broker.fetch import Fetch, FetchCall, FetchQuery, Reading
from penstock.broker.partitions import Partitions
from penstock.broker.rack_selector import RackAwareSelector
from penstock.broker.readers import Fetched, Wanted
from penstock.cluster.brokers import Broker
from penstock.frontdoor.kafka.fetch_sessions import (
    INITIAL_EPOCH,
    FetchSessions,
    SessionAnswer,
    SessionStep,
)
from penstock.model.errors import Reason
from penstock.model.ids import BrokerId, PartitionIndex, ReplicaId
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from penstock.storage import repair
from tests.unit.broker.lone_leaderships import broker
from tests.unit.broker.test_fetch import contents, wanted, within
from tests.unit.replication.group_rig import Group, group_of
from tests.unit.replication.rig import TOPIC_ID, batch
from tests.unit.replication.test_group_members import want
from tests.waiting import until

# Longer than any test: nothing but news ends such a wait.
LONG_MS = 600_000
RACKS = {1: "a", 2: "b", 3: "c"}


class Holder:
    """The one replica of a node, found under every name."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def get(self, *_: object) -> Replica:
        return self.replica

    def soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)


class Racks:
    """The brokers of a cluster, and which of them are there."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.dead: set[int] = set()
        self.brokers: Mapping[BrokerId, Broker] = {
            BrokerId(node): broker(node, rack) for node, rack in racks.items()
        }

    def reaches(self, replica: ReplicaId) -> bool:
        return replica.node not in self.dead


class Consumer:
    """Asks one node of the group."""

    def __init__(self, group: Group, node: int, racks: Racks | None = None) -> None:
        self.replica = group.replica(node)
        self.fetch = Fetch(
            partitions=cast(Partitions, Holder(self.replica)),
            limits=Limits(fetch_wait_ms_max=LONG_MS),
            executor=group.network.nodes[node].disk,
            selector=None if racks is None else RackAwareSelector(racks, racks),
        )

    def ask(
        self,
        *parts: Wanted,
        rack: str | None = "",
        wait_ms: int = 0,
        reading: Reading | None = None,
    ) -> FetchCall:
        query = FetchQuery(wait_ms_max=wait_ms, bytes_min=1, bytes_max=1_000_000, rack=rack)
        return self.fetch.fetch(reading or Reading(self.fetch.reader(parts)), query)

    async def get(self, offset: int, *, rack: str | None = "", **options: int) -> Fetched:
        answer = await within(self.ask(wanted(offset, **options), rack=rack))
        answer.release()
        return answer.partitions[0]

    async def reason(
        self, offset: int = 0, *, rack: str | None = "", **options: int
    ) -> Reason | None:
        return (await self.get(offset, rack=rack, **options)).reason


@asynccontextmanager
async def group_with(path: Path, records: int, **config: int) -> AsyncIterator[Group]:
    """Node 1 leads, and all have this many records."""
    async with group_of(path, 1, 2, 3, config=TopicConfig(**config)) as group:
        leader = await group.leader()
        assert leader.id.node == 1
        await write(leader, records)
        await until(lambda: all(each.high_watermark == records for each in group.replicas))
        yield group


async def write(leader: Replica, count: int) -> None:
    for number in range(count):
        leader.append(batch(b"%d" % number))
    await leader.committed()


# What a follower serves


async def test_a_follower_serves_those_who_may_read_there(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        consumer = Consumer(group, 2)
        answer = await within(consumer.ask(wanted(1), rack=""))
        assert answer.partitions[0].high_watermark == 3
        assert contents(answer) == [[b"1", b"2"]]
        assert await consumer.reason(1, rack=None) is Reason.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_shows_nothing_that_is_not_committed(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        # The leader's records arrive, but it does not hear so.
        group.network.cut = {(2, 1), (3, 1)}
        group.replica(1).append(batch(b"uncommitted"))
        follower, consumer = group.replica(2), Consumer(group, 2)
        await until(lambda: follower.log_end_offset == 4)
        assert follower.high_watermark == 3
        for offset in (3, 4):
            fetched = await consumer.get(offset)
            assert fetched.is_quiet
            assert fetched.high_watermark == 3
        answer = await within(consumer.ask(wanted(2)))
        assert contents(answer) == [[b"2"]]
        assert await consumer.reason(5) is Reason.OFFSET_NOT_AVAILABLE


async def test_a_follower_leaves_it_to_the_leader_to_call_an_offset_out_of_range(
    tmp_path: Path,
) -> None:
    async with group_with(tmp_path, 3) as group:
        await group.replica(1).delete_records(2)
        follower = group.replica(2)
        await until(lambda: follower.log_start_offset == 2)
        for offset in (0, 4):
            assert await Consumer(group, 2).reason(offset) is Reason.OFFSET_NOT_AVAILABLE
            assert await Consumer(group, 1).reason(offset) is Reason.OFFSET_OUT_OF_RANGE


async def test_a_follower_checks_the_leader_epoch(tmp_path: Path) -> None:
    async with group_with(tmp_path, 1) as group:
        consumer, term = Consumer(group, 2), group.replica(2).term
        assert await consumer.reason(term=term) is None
        assert await consumer.reason(term=term - 1) is Reason.FENCED_LEADER_EPOCH
        assert await consumer.reason(term=term + 1) is Reason.UNKNOWN_LEADER_EPOCH


async def test_a_follower_that_lags_does_not_say_that_a_consumer_differs(tmp_path: Path) -> None:
    async with group_with(tmp_path, 2) as group:
        fetched = await Consumer(group, 2).get(2, last_fetched_term=99)
        assert fetched.is_quiet
        leader = await Consumer(group, 1).get(2, last_fetched_term=99)
        assert leader.reason is Reason.OFFSET_OUT_OF_RANGE


# Waiting


async def test_a_wait_at_a_follower_ends_when_its_high_watermark_moves(tmp_path: Path) -> None:
    async with group_with(tmp_path, 1) as group:
        call = Consumer(group, 2).ask(wanted(1), wait_ms=LONG_MS)
        assert not call.is_settled
        await write(group.replica(1), 1)
        assert contents(await within(call)) == [[b"0"]]


async def test_a_wait_ends_when_the_follower_hears_of_no_leader_any_more(tmp_path: Path) -> None:
    async with group_with(tmp_path, 1) as group:
        consumer = Consumer(group, 2)
        call = consumer.ask(wanted(1), wait_ms=LONG_MS)
        group.network.isolate(2)
        assert contents(await within(call)) == [Reason.NOT_LEADER_OR_FOLLOWER]
        assert await consumer.reason() is Reason.NOT_LEADER_OR_FOLLOWER
        group.network.heal()
        await until(lambda: group.replica(2).leader is not None)
        assert await consumer.reason() is None


async def test_a_wait_ends_when_the_follower_can_not_write(tmp_path: Path) -> None:
    async with group_with(tmp_path, 1) as group:
        faults, consumer = group.network.nodes[2].faults, Consumer(group, 2)
        call = consumer.ask(wanted(1), wait_ms=LONG_MS)
        faults.write_error = errno.ENOSPC
        await write(group.replica(1), 1)
        assert contents(await within(call)) == [Reason.STORAGE_ERROR]
        faults.write_error = None
        await until(lambda: group.replica(2).high_watermark == 2)
        assert await consumer.reason() is None


async def test_a_wait_ends_when_the_follower_loses_its_vote(tmp_path: Path) -> None:
    async with group_with(tmp_path, 1) as group:
        call = Consumer(group, 3).ask(wanted(1), wait_ms=LONG_MS)
        want(group, 1, 2)
        assert contents(await within(call)) == [Reason.NOT_LEADER_OR_FOLLOWER]


# Who serves nobody


async def test_a_replica_that_is_filled_again_serves_nobody_until_it_has_everything(
    tmp_path: Path,
) -> None:
    async with group_with(tmp_path, 20) as group:
        node = group.network.nodes[3]
        directory = node.directory.partition_directory(TOPIC_ID, PartitionIndex(0))
        await group.crash(3)
        (segment,) = directory.glob("*.log")
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
        assert repair.cut(directory, node.file_system)
        group.network.full = {3}
        await group.open(group.start_node(3))
        repaired, consumer = group.replica(3), Consumer(group, 3)
        await until(lambda: repaired.leader is not None)
        assert repaired._refill.is_due
        assert await consumer.reason() is Reason.NOT_LEADER_OR_FOLLOWER
        group.network.full = set()
        await until(lambda: not repaired._refill.is_due)
        assert await consumer.reason() is None


async def test_a_replica_without_a_vote_serves_nobody(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        node = group.start_node(4)
        await group.open(node)
        group.network.full = {4}
        want(group, 1, 2, 3, 4)
        learner = group.replica(4)
        await until(lambda: learner.leader is not None)
        assert await Consumer(group, 4).reason() is Reason.NOT_LEADER_OR_FOLLOWER
        group.network.full = set()
        await until(lambda: learner.id in learner.membership.voters)
        assert await Consumer(group, 4).reason() is None


async def test_a_replica_serves_nobody_while_a_snapshot_is_installed(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3, segment_bytes=300) as group:
        leader, follower, consumer = group.replica(1), group.replica(2), Consumer(group, 2)
        call = consumer.ask(wanted(3), wait_ms=LONG_MS)
        group.network.full = {2}
        await write(leader, 20)
        assert await leader.delete_records(20) == 20
        group.network.nodes[2].faults.writes_go_on.clear()
        group.network.full = set()
        assert contents(await within(call)) == [Reason.NOT_LEADER_OR_FOLLOWER]
        assert follower.high_watermark == 3
        group.network.nodes[2].faults.writes_go_on.set()
        await until(lambda: follower.high_watermark == 23)
        assert await consumer.reason(20) is None


# Who is sent to a follower


async def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        consumer = Consumer(group, 1, Racks(RACKS))
        fetched = await consumer.get(1, rack="b")
        assert (fetched.preferred, fetched.records, fetched.reason) == (2, None, None)
        assert (fetched.high_watermark, fetched.log_start_offset) == (3, 0)
        # At the end too: the wait is for the follower to hold.
        assert (await consumer.get(3, rack="c")).preferred == 3
        for rack in ("a", "elsewhere", "", None):
            fetched = await consumer.get(1, rack=rack)
            assert fetched.preferred is None
        assert (await Consumer(group, 1).get(1, rack="b")).preferred is None
        beside = Consumer(group, 1, Racks({1: "b", 2: "b", 3: "c"}))
        assert (await beside.get(1, rack="b")).preferred is None
        assert (await consumer.get(9, rack="b")).reason is Reason.OFFSET_OUT_OF_RANGE


async def test_only_a_follower_that_has_the_offset_is_named(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        racks = Racks({1: "a", 2: "b", 3: "b"})
        consumer = Consumer(group, 1, racks)
        assert (await consumer.get(3, rack="b")).preferred == 3
        group.network.full = {3}
        await write(group.replica(1), 2)
        # The one that is further, whichever number it has.
        assert (await consumer.get(0, rack="b")).preferred == 2
        racks.dead = {2}
        assert (await consumer.get(3, rack="b")).preferred == 3
        assert (await consumer.get(4, rack="b")).preferred is None
        await group.replica(1).delete_records(1)
        assert (await consumer.get(0, rack="b")).reason is Reason.OFFSET_OUT_OF_RANGE


async def test_a_follower_that_is_not_in_sync_is_not_named(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        consumer = Consumer(group, 1, Racks(RACKS))
        group.replica(1).leader_lost(BrokerId(2))
        assert (await consumer.get(1, rack="b")).preferred is None


async def test_a_new_leader_names_nobody_of_whom_it_has_not_heard(tmp_path: Path) -> None:
    async with group_with(tmp_path, 0) as group:
        await group.crash(1)
        leader = await group.leader()
        consumer = Consumer(group, leader.id.node, Racks(RACKS))
        # Every voter of a new leader counts as in sync for a moment.
        assert 1 in leader.in_sync()
        assert (await consumer.get(0, rack="a")).preferred is None
        other = 5 - leader.id.node
        assert (await consumer.get(0, rack=RACKS[other])).preferred == other


async def test_a_wait_at_the_leader_ends_with_the_name_of_a_follower(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        consumer = Consumer(group, 1, Racks(RACKS))
        group.network.full = {2}
        await write(group.replica(1), 1)
        call = consumer.ask(wanted(4), rack="b", wait_ms=LONG_MS)
        await asyncio.sleep(0)
        assert not call.is_settled
        group.network.full = set()
        await until(lambda: group.replica(2).log_end_offset == 4)
        await write(group.replica(1), 1)
        answer = await within(call)
        assert answer.partitions[0].preferred == 2


async def test_a_session_names_the_follower_until_the_consumer_goes_there(tmp_path: Path) -> None:
    async with group_with(tmp_path, 3) as group:
        consumer = Consumer(group, 1, Racks(RACKS))
        sessions = FetchSessions(
            make_reader=consumer.fetch.reader, clock=group.clock, sessions_max=1
        )
        context = sessions.begin(SessionStep(0, INITIAL_EPOCH, False), [wanted(3)], [])
        first = await within(consumer.ask(rack="b", reading=context))
        assert isinstance(first, SessionAnswer)
        assert [each.preferred for each in first.partitions] == [2]
        for epoch in (1, 2):
            context = sessions.begin(SessionStep(first.session_id, epoch, False), [], [])
            answer = await within(consumer.ask(rack="b", reading=context, wait_ms=LONG_MS))
            assert [each.preferred for each in answer.partitions] == [2]
