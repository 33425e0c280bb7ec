"""The coordinator of one partition of the state topic, on a real disk: its log stays short, and
what was stored is there after a restart."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.queues import Queues
from penstock.cluster.topic_names import SHARE_GROUP_STATE
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues import coordinator as coordinating
from penstock.queues.commands import Change, Range, RecordState
from penstock.queues.coordinator import ShareCoordinator
from penstock.queues.decisions import Open, Write
from penstock.queues.layout import QueueKey
from penstock.queues.records import QueueRecord, QueueStored
from penstock.replication import hosting
from penstock.replication.replica import Replica
from tests.unit.broker.queue_rig import QueueNode
from tests.unit.lone_node import run
from tests.unit.queues.test_queue_state import whole
from tests.waiting import until

ONE = {"share_coordinator_state_topic_num_partitions": "1"}
GROUP = GroupId("workers")
CHANGES = 100_000
# Decisions that are stored together, as they are under load.
CHANGES_PER_WRITE = 10
# Writes of one queue that are under way together; a real leader waits for each.
AT_ONCE = 10
LOG_RECORDS_MAX = 1_000


async def coordinator_of(node: QueueNode) -> ShareCoordinator:
    queues: Queues = node.queues
    coordinators = queues._coordinators
    await coordinators.initialize({})
    await coordinators._ensure_topic()
    await until(lambda: 0 in coordinators._coordinators)
    coordinator = coordinators._coordinators[0]
    await until(lambda: coordinator.is_active)
    return coordinator


class Writer:
    """A leader of one queue that changes it again and again."""

    def __init__(self, coordinator: ShareCoordinator, key: QueueKey, *, term: int = 1) -> None:
        self.coordinator = coordinator
        self.key = key
        self.term = term
        self.version = 0
        self.start = 0

    async def open(self) -> None:
        await self.coordinator.initialize({self.key: -1})
        stored = await self.coordinator.open(Open(key=self.key, term=self.term, opening=1))
        self.version, self.start = stored.version, max(0, stored.whole.start)

    async def write(self, *, ranges: int = 3) -> None:
        self.version += 1
        command = Write(
            key=self.key,
            term=self.term,
            opening=1,
            state_epoch=0,
            version=self.version,
            changes=tuple(self._change(ranges) for _ in range(CHANGES_PER_WRITE)),
        )
        await self.coordinator.write(command)

    def _change(self, ranges: int) -> Change:
        """Each range is another one, since the numbers of attempts differ."""
        self.start += 1
        leased = (
            Range(at, at, RecordState.LEASED, 1 + at % 3, MemberId("m"), 30_000)
            for at in range(self.start, self.start + ranges)
        )
        return Change(start=self.start, ranges=tuple(leased))


async def change(writers: list[Writer], count: int) -> None:
    """Many at a time, so that they share syncs."""
    for _ in range(count // (len(writers) * AT_ONCE * CHANGES_PER_WRITE) + 1):
        writes = (writer.write() for _ in range(AT_ONCE) for writer in writers)
        await asyncio.gather(*writes)


def test_the_log_stays_short_and_says_the_same_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        coordinator = await coordinator_of(node)
        coordinator._log_records_max = LOG_RECORDS_MAX
        keys = [QueueKey(GROUP, node.topic_id, number) for number in range(100)]
        writers = [Writer(coordinator, key) for key in keys]
        await asyncio.gather(*(writer.open() for writer in writers))
        # Most of them change often, and some never again: these must not keep the log.
        await change(writers[20:], CHANGES)
        # What came while the log was shortened is shortened after the next changes.
        for _ in range(4):
            await until(lambda: coordinator._trimming is None)
            await writers[20].write()
        await until(lambda: coordinator._trimming is None)
        replica = coordinator.replica
        kept = replica.log_end_offset - replica.log_start_offset
        assert replica.log_end_offset >= CHANGES / CHANGES_PER_WRITE
        assert kept <= LOG_RECORDS_MAX + len(keys)
        before = whole(coordinator._host.state)
        assert len(before) == len(keys)
        node.kill()
        again = await QueueNode.begin(tmp_path, **ONE)
        assert whole((await coordinator_of(again))._host.state) == before
        await again.stop()

    run(scenario)


def test_large_queues_are_stored_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several of them in one batch may be more than another node can be sent."""
    monkeypatch.setattr(coordinating, "STORED_BYTES_AT_A_TIME_MAX", 4 * size_of(ranges=10))

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        coordinator = await coordinator_of(node)
        keys = [QueueKey(GROUP, node.topic_id, number) for number in range(22)]
        for number, key in enumerate(keys):
            writer = Writer(coordinator, key)
            await writer.open()
            await writer.write(ranges=1_000 if number < 2 else 10)
        portions: list[list[QueueKey]] = []
        submit = coordinator._submit

        def counted(records: Sequence[QueueRecord]) -> asyncio.Future[None]:
            portions.append([record.key for record in records])
            return submit(records)

        monkeypatch.setattr(coordinator, "_submit", counted)
        await coordinator._store_wholes(keys)
        assert [len(portion) for portion in portions] == [1, 1, 4, 4, 4, 4, 4]
        assert list(chain.from_iterable(portions)) == keys
        await node.stop()

    run(scenario)


def size_of(ranges: int) -> int:
    whole = Change(start=0, ranges=(Range(0, 0, RecordState.ACKED, 1),) * ranges)
    key = QueueKey(GROUP, TopicId(UUID(int=1)), 0)
    return coordinating._size(QueueStored(key=key, whole=whole))


def test_what_is_too_large_is_refused_and_the_log_is_not_shortened_at_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        coordinator = await coordinator_of(node)
        coordinator._log_records_max = 20
        large, small = (Writer(coordinator, QueueKey(GROUP, node.topic_id, at)) for at in (0, 1))
        for writer in (large, small):
            await writer.open()
        await large.write(ranges=500)
        monkeypatch.setattr(hosting, "BATCH_BYTES_MAX", 10_000)
        tries = []
        store_wholes = coordinator._store_wholes

        async def counted(keys: Sequence[QueueKey]) -> None:
            tries.append(keys)
            await store_wholes(keys)

        monkeypatch.setattr(coordinator, "_store_wholes", counted)
        for _ in range(50):
            await small.write()
        assert len(tries) == 1
        with pytest.raises(Refused, match="at most 10000 are allowed") as refused:
            await small.write(ranges=500)
        assert refused.value.reason is Reason.UNKNOWN_SERVER_ERROR
        small.version -= 1
        await small.write()
        await node.stop()

    run(scenario)


def forget_snapshots(path: Path) -> None:
    found = list((path / "topics").rglob("state.snapshot"))
    assert found
    for snapshot in found:
        snapshot.unlink()


def test_a_replay_of_the_log_alone_says_the_same(tmp_path: Path) -> None:
    """As on a follower that has no snapshot file when it takes over."""

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        coordinator = await coordinator_of(node)
        coordinator._log_records_max = 200
        keys = [QueueKey(GROUP, node.topic_id, number) for number in range(20)]
        writers = [Writer(coordinator, key) for key in keys]
        await asyncio.gather(*(writer.open() for writer in writers))
        await change(writers[5:], 20_000)
        await until(lambda: coordinator._trimming is None)
        assert coordinator.replica.log_start_offset > 1_000
        before = whole(coordinator._host.state)
        await node.stop()
        forget_snapshots(tmp_path)
        again = await QueueNode.begin(tmp_path, **ONE)
        assert whole((await coordinator_of(again))._host.state) == before
        await again.stop()

    run(scenario)


def test_an_old_leader_is_refused_after_a_restart_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        key = QueueKey(GROUP, node.topic_id, 0)
        writer = Writer(await coordinator_of(node), key, term=5)
        await writer.open()
        await writer.write()
        node.kill()
        again = await QueueNode.begin(tmp_path, **ONE)
        late = Writer(await coordinator_of(again), key, term=4)
        with pytest.raises(Refused) as refused:
            await late.open()
        assert refused.value.reason is Reason.FENCED_LEADER_EPOCH
        doubled = Writer(late.coordinator, key, term=5)
        with pytest.raises(Refused) as refused:
            await doubled.write()
        assert refused.value.reason is Reason.FENCED_STATE_EPOCH
        await again.stop()

    run(scenario)


def test_nothing_is_said_to_be_missing_unless_a_majority_confirms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    confirm = Replica.confirm

    async def counted(replica: Replica) -> None:
        asked.append(replica)
        await confirm(replica)

    monkeypatch.setattr(Replica, "confirm", counted)

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        coordinator = await coordinator_of(node)
        asked.clear()
        assert await coordinator.read(GroupId("nobody")) == []
        await coordinator.remove([QueueKey(GROUP, node.topic_id, 9)])
        assert asked.count(coordinator.replica) == 2
        await node.stop()

    run(scenario)


def test_topic_of_states_is_internal_and_never_shortened_by_retention(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, **ONE)
        await coordinator_of(node)
        topic = node.cluster.topic(SHARE_GROUP_STATE)
        assert topic is not None
        assert topic.internal
        config = node.cluster.topic_config(SHARE_GROUP_STATE)
        assert (config.retention_ms, config.retention_bytes) == (-1, -1)
        assert not config.cleanup_compact
        await node.stop()

    run(scenario)
