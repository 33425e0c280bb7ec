"""Proves that the committed copy on every node is the same, and that a host follows leadership."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import BrokerId, Offset
from penstock.replication import feed as feed_module
from penstock.replication.commit import Commit
from penstock.replication.feed import Feed
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica
from tests.unit.storage.rot import misplace_batch
from tests.waiting import until

from .group_rig import group_of
from .rig import PATIENCE_S, Node, batch, run, running
from .test_hosting import COMPACTED, Put, Table, TableCodec


def feed_on(node: Node, replica: Replica, snapshot_records: int = 20_000) -> Feed[Table, Put]:
    return Feed(
        replica=replica,
        make_state=Table,
        codec=TableCodec(),
        snapshot_path=node.directory.path / "table.snapshot",
        file_system=node.file_system,
        executor=node.disk,
        snapshot_records=snapshot_records,
    )


def host_on(node: Node, replica: Replica, feed: Feed[Table, Put] | None = None) -> Host[Table, Put]:
    return Host(
        replica=replica,
        make_state=Table,
        codec=TableCodec(),
        snapshot_path=node.directory.path / "host.snapshot",
        file_system=node.file_system,
        clock=node.clock,
        executor=node.disk,
        feed=feed,
    )


async def test_a_feed_applies_what_is_committed_and_tells(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica)
        host = host_on(node, replica, feed)
        told: list[tuple[list[Put], int]] = []
        feed.on_applied(lambda records, offset: told.append((list(records), offset)))
        await feed.load()
        await host.load()
        node.faults.writes_go_on.clear()
        pending = host.submit([("a", 1), ("b", 2)])
        await asyncio.sleep(0.02)
        assert (host.state.numbers, feed.state.numbers) == ({"a": 1, "b": 2}, {})
        node.faults.writes_go_on.set()
        await pending
        await feed.wait_for(Offset(2))
        assert feed.state.numbers == {"a": 1, "b": 2}
        assert told == [([("a", 1), ("b", 2)], 2)]
        await host.close()
        await feed.close()
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica)
        await feed.load()
        assert (feed.state.numbers, feed.state.applied) == ({"a": 1, "b": 2}, 0)


async def test_a_feed_writes_snapshots_as_it_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica, snapshot_records=10)
        host = host_on(node, replica, feed)
        await feed.load()
        await host.load()
        for number in range(25):
            await host.submit([("n", number)])
            await feed.wait_for(Offset(number + 1))
        await until(lambda: feed._snapshotting is None)
    async with running(tmp_path) as node:
        feed = feed_on(node, await node.replica(COMPACTED))
        await feed.load()
        assert feed.state.numbers == {"n": 24}
        assert feed.state.applied < 25


def test_a_record_that_is_not_in_its_place_is_not_applied(tmp_path: Path) -> None:
    async def fill() -> None:
        async with running(tmp_path) as node:
            host = host_on(node, await node.replica(COMPACTED))
            await host.load()
            for number in range(5):
                await host.submit([("n", number)])

    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica(COMPACTED)
            assert replica.stopped_because is None
            with pytest.raises(Refused) as caught:
                await feed_on(node, replica).load()
            assert caught.value.reason is Reason.STORAGE_ERROR
            assert "instead of" in str(replica.stopped_because)

    run(fill)
    (segment,) = tmp_path.rglob("*.log")
    misplace_batch(segment)
    run(scenario)


async def test_compaction_waits_for_the_feed_so_that_no_deleted_name_comes_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica)
        host = host_on(node, replica, feed)
        await feed.load()
        await host.load()
        await host.submit([("doomed", 1)])
        assert await feed.write_snapshot()
        await host.submit([("doomed", None)])
        for number in range(100):
            await host.submit([("filler", number)])
        for _ in range(3):
            node.clock.ms += 5 * 24 * 3600 * 1000
            await replica.maintain(node.clock.ms)
        await host.close()
    async with running(tmp_path) as node:
        feed = feed_on(node, await node.replica(COMPACTED))
        await feed.load()
        await feed.wait_for(Offset(102))
        assert feed.state.numbers == {"filler": 99}


async def test_a_feed_finds_what_was_committed_at_an_offset_with_its_headers(
    tmp_path: Path,
) -> None:
    """None where the log holds nothing any more, or not yet."""
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica)
        host = host_on(node, replica, feed)
        await feed.load()
        await host.load()
        mark = (("mark", b"1"),)
        await host.submit([("a", 1), ("b", 2)], mark)
        await host.submit([("a", 3)])
        for number in range(100):
            await host.submit([("filler", number)])
        await feed.wait_for(Offset(103))
        found = [await feed.record_at(Offset(offset)) for offset in range(3)]
        assert [each and (each.offset, each.key, each.headers) for each in found] == [
            (0, b"a", mark),
            (1, b"b", mark),
            (2, b"a", ()),
        ]
        assert await feed.record_at(Offset(103)) is None
        node.clock.ms += 5 * 24 * 3600 * 1000
        await replica.maintain(node.clock.ms)
        assert await feed.record_at(Offset(0)) is None, "it is compacted"
        found_later = await feed.record_at(Offset(1))
        assert found_later is not None
        assert found_later.headers == mark
        await replica.delete_records(50)
        assert await feed.record_at(Offset(1)) is None, "it is before the log's start"
        await host.close()


@pytest.mark.parametrize("has_feeds", [True, False])
async def test_a_host_follows_leadership_and_finds_everything_again(
    tmp_path: Path, has_feeds: bool
) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=COMPACTED) as group:
        leader = await group.leader()
        hosts: dict[int, Host[Table, Put]] = {}
        feeds: list[Feed[Table, Put]] = []
        told: list[tuple[int, str]] = []
        for number, node in group.network.nodes.items():
            replica = group.replica(number)
            feed = None
            if has_feeds:
                feed = feed_on(node, replica)
                feeds.append(feed)
                await feed.load()
            host = hosts[number] = host_on(node, replica, feed)
            host.on_ready(lambda number=number: told.append((number, "ready")))  # type: ignore[misc]
            host.on_lost(lambda number=number: told.append((number, "lost")))  # type: ignore[misc]
            host.start()
        first = hosts[leader.id.node]
        await until(lambda: first.is_ready)
        await first.submit([("a", 1)])
        await first.decide(lambda table: ([("b", table.numbers["a"] + 1)], None))
        other = hosts[2 if leader.id.node != 2 else 3]
        with pytest.raises(Refused) as caught:
            await other.submit([("c", 3)])
        assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(Refused):
            await other.decide(lambda _: ([], None))
        leader.transfer(BrokerId(other.replica.id.node))
        await until(lambda: other.is_ready and not first.is_ready)
        seen = await other.decide(lambda table: ([("c", 3)], dict(table.numbers)))
        assert seen == {"a": 1, "b": 2}
        assert told == [
            (leader.id.node, "ready"),
            (leader.id.node, "lost"),
            (other.replica.id.node, "ready"),
        ]
        for feed in feeds:
            await feed.wait_for(Offset(3))
            assert feed.state.numbers == {"a": 1, "b": 2, "c": 3}
        for host in hosts.values():
            await host.close()


async def test_what_a_lost_leader_decided_alone_is_forgotten(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=COMPACTED) as group:
        leader = await group.leader()
        node = group.network.nodes[leader.id.node]
        host = host_on(node, leader)
        await host.load()
        await host.submit([("kept", 1)])
        group.network.isolate(leader.id.node)
        doomed = host.submit([("lost", 2)])
        with pytest.raises(Refused) as caught:
            await doomed
        assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
        assert not host.is_ready
        group.network.heal()
        await until(lambda: any(one.is_settled and one is not leader for one in group.replicas))
        current = next(one for one in group.replicas if one.is_settled and one is not leader)
        await until(lambda: leader.high_watermark == current.high_watermark)
        await until(lambda: leader.log_end_offset == current.log_end_offset)
        current.transfer(BrokerId(leader.id.node))
        await until(lambda: host.is_ready)
        assert host.state.numbers == {"kept": 1}
        await host.close()


async def test_the_end_does_not_wait_for_what_may_never_be_committed(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=COMPACTED) as group:
        leader = await group.leader()
        node = group.network.nodes[leader.id.node]
        feed = feed_on(node, leader)
        host = host_on(node, leader)
        await feed.load()
        await host.load()
        await host.submit([("a", 1)])
        group.network.isolate(leader.id.node)
        doomed = host.submit([("b", 2)])
        waiting = asyncio.ensure_future(feed.wait_for(Offset(2)))
        await asyncio.sleep(0)
        await asyncio.wait_for(host.close(), PATIENCE_S)
        await asyncio.wait_for(feed.close(), PATIENCE_S)
        for outcome in (doomed, waiting):
            with pytest.raises(Refused):
                await outcome


async def test_a_host_that_loses_its_leadership_while_its_feed_is_behind_waits_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its new leader sends and has not committed is nothing that the feed will ever show."""
    asked = 0
    committed = Replica.committed

    def counted(replica: Replica) -> Commit:
        nonlocal asked
        asked += 1
        assert asked < 1_000, "it asks again and again without ever letting go of the loop"
        return committed(replica)

    async with group_of(tmp_path, 1, 2, 3, config=COMPACTED) as group:
        first = await group.leader()
        assert first is group.replica(1)
        node = group.network.nodes[1]
        feed = feed_on(node, first)
        host = host_on(node, first, feed)
        await feed.load()
        feed_goes_on = Event()
        with ThreadPoolExecutor(1) as slow:
            slow.submit(feed_goes_on.wait, PATIENCE_S)
            feed._executor = slow
            first.append_own(batch(b"1", key=b"a"))
            await first.committed()
            host.start()
            await until(lambda: bool(feed._waiting))
            group.network.isolate(1)
            others = [group.replica(2), group.replica(3)]
            await until(lambda: any(one.is_settled for one in others) and not first.is_leader)
            second = next(one for one in others if one.is_settled)
            group.network.heal()
            await until(lambda: second.progress().get(first.id) == 1)
            await until(lambda: first.leader == second.id)
            third = next(one for one in others if one is not second)
            group.network.isolate(third.id.node)
            group.network.cut.add((1, second.id.node))
            second.append(batch(b"2", key=b"b"))
            await until(lambda: first.log_end_offset == 2)
            assert (first.high_watermark, feed.applied) == (1, 0)
            monkeypatch.setattr(Replica, "committed", counted)
            feed_goes_on.set()
            assert host._loading is not None
            await asyncio.wait_for(host._loading, PATIENCE_S)
        assert not host.is_ready
        assert feed.state.numbers == {"a": 1}


async def test_a_feed_that_could_not_read_tries_again_although_nothing_new_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RETRY_AFTER_S", 0.02)
    read_committed = Replica.read_committed
    failures = 3

    def read(replica: Replica, offset: int, bytes_max: int) -> FileRange | None:
        nonlocal failures
        if failures > 0:
            failures -= 1
            raise Refused(Reason.STORAGE_ERROR, "too many open files")
        return read_committed(replica, offset, bytes_max)

    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica)
        await feed.load()
        monkeypatch.setattr(Replica, "read_committed", read)
        replica.append_own(batch(b"1", key=b"a"))
        await replica.committed()
        await asyncio.wait_for(feed.wait_for(Offset(1)), PATIENCE_S)
        assert (feed.state.numbers, failures) == ({"a": 1}, 0)


class SlowSnapshots:
    """Lets a feed's snapshots wait until they may go on, and counts how many do so at once."""

    def __init__(self, feed: Feed[Table, Put], monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = Event()
        self.under_way = self.most = 0
        self._lock = Lock()
        self._write = feed._file.write
        monkeypatch.setattr(feed._file, "write", self._write_later)

    def _write_later(self, encode: Callable[[], bytes], offset: Offset) -> None:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.go_on.wait(PATIENCE_S)
        self._write(encode, offset)
        with self._lock:
            self.under_way -= 1


async def test_a_feed_ends_although_more_is_committed_while_its_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica, snapshot_records=1)
        host = host_on(node, replica, feed)
        await feed.load()
        await host.load()
        slow = SlowSnapshots(feed, monkeypatch)
        await host.submit([("a", 1)])
        await until(lambda: slow.under_way == 1)
        closing = asyncio.create_task(feed.close())
        await asyncio.sleep(0)
        await host.submit([("b", 2)])
        slow.go_on.set()
        await asyncio.wait_for(closing, PATIENCE_S)
        await host.close()


async def test_compaction_s_snapshot_waits_for_the_one_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(COMPACTED)
        feed = feed_on(node, replica, snapshot_records=1)
        host = host_on(node, replica, feed)
        await feed.load()
        await host.load()
        slow = SlowSnapshots(feed, monkeypatch)
        monkeypatch.setattr(feed, "_follow", lambda: None)
        await host.submit([("a", 1)])
        writing = asyncio.create_task(feed.write_snapshot())
        await asyncio.sleep(0)
        await feed._advance()
        await until(lambda: slow.under_way >= 1)
        await host.submit([("b", 2)])
        slow.go_on.set()
        assert await asyncio.wait_for(writing, PATIENCE_S)
        assert slow.most == 1
