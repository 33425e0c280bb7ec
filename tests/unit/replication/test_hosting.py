"""Proves that a hosted state is exactly what its committed records say, through every failure."""

import asyncio
import errno
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import Offset
from penstock.model.topic_config import TopicConfig
from penstock.replication.hosting import Host
from penstock.storage.snapshot import Snapshot, read_snapshot, write_snapshot
from tests.unit.storage.rot import misplace_batch
from tests.waiting import until

from .rig import Node, run, running

COMPACTED = TopicConfig(
    cleanup_delete=False, cleanup_compact=True, segment_bytes=2_000, index_interval_bytes=200
)
Put = tuple[str, int | None]


class Table:
    """A map from names to numbers; a number of None takes the name away."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.applied = 0

    def apply(self, record: Put) -> None:
        name, number = record
        self.applied += 1
        if number is None:
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = number

    def snapshot(self) -> Callable[[], bytes]:
        numbers = self.numbers.copy()
        return lambda: json.dumps(numbers).encode()

    def restore(self, data: bytes) -> None:
        self.numbers = json.loads(data)


class TableCodec:
    def encode(self, record: Put) -> tuple[bytes, bytes | None]:
        name, number = record
        return name.encode(), None if number is None else str(number).encode()

    def decode(self, key: bytes | None, value: bytes | None) -> Put:
        assert key is not None
        return key.decode(), None if value is None else int(value)


async def host_on(node: Node, snapshot_records: int = 20_000) -> Host[Table, Put]:
    replica = await node.replica(COMPACTED)
    host: Host[Table, Put] = Host(
        replica=replica,
        make_state=Table,
        codec=TableCodec(),
        snapshot_path=node.directory.path / "table.snapshot",
        file_system=node.file_system,
        clock=node.clock,
        executor=node.disk,
        snapshot_records=snapshot_records,
    )
    await host.load()
    return host


async def test_a_decision_sees_earlier_ones_and_answers_after_they_are_safe(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node)
        node.faults.writes_go_on.clear()
        first = asyncio.create_task(host.decide(lambda _: ([("a", 1)], "first")))
        await asyncio.sleep(0)
        seen = asyncio.create_task(host.decide(lambda table: ([], dict(table.numbers))))
        await asyncio.sleep(0.05)
        assert host.state.numbers == {"a": 1}
        assert not first.done()
        assert not seen.done()
        node.faults.writes_go_on.set()
        assert await first == "first"
        assert await seen == {"a": 1}


async def test_a_restart_replays_what_no_snapshot_covers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node)
        await host.submit([("a", 1), ("b", 2)])
        await host.submit([("a", None)])
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert (host.state.numbers, host.state.applied) == ({"b": 2}, 3)
        await host.close()
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert (host.state.numbers, host.state.applied) == ({"b": 2}, 0)
        await host.submit([("c", 3)])
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert (host.state.numbers, host.state.applied) == ({"b": 2, "c": 3}, 1)


async def test_a_snapshot_is_written_every_so_many_records(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node, snapshot_records=10)
        for number in range(25):
            await host.submit([("n", number)])
            # One that is due while another is written would come later.
            await until(lambda: host._snapshotting is None)
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert (host.state.numbers, host.state.applied) == ({"n": 24}, 5)


async def test_what_is_lost_before_its_snapshot_begins_is_in_no_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node, snapshot_records=1)
        node.faults.writes_go_on.clear()
        done = host.submit([("never", 1)])
        writing = host._snapshotting
        assert writing is not None
        # In the same turn: the task of the snapshot has not begun.
        host.replica.stop(OSError(errno.EIO, "gone"))
        node.faults.writes_go_on.set()
        assert not await writing
        with pytest.raises(Refused):
            await done
        assert read_snapshot(node.file_system, host._file._path) is None


def test_bytes_of_a_snapshot_are_made_by_a_worker_of_the_state_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    take = Table.snapshot

    def noted(self: Table) -> Callable[[], bytes]:
        encode = take(self)

        def encode_there() -> bytes:
            threads.append(threading.current_thread())
            return encode()

        return encode_there

    monkeypatch.setattr(Table, "snapshot", noted)

    async def scenario() -> None:
        async with running(tmp_path) as node:
            host = await host_on(node)
            await host.submit([("a", 1)])
            writing = asyncio.ensure_future(host.write_snapshot())
            await asyncio.sleep(0)
            await host.submit([("a", 2)])
            assert await writing
            snapshot = read_snapshot(node.file_system, node.directory.path / "table.snapshot")
            assert snapshot == Snapshot(data=b'{"a": 1}', offset=Offset(1))

    run(scenario)
    assert threads
    assert threading.main_thread() not in threads


async def test_a_failed_write_voids_the_state_until_it_is_known_what_became_of_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node)
        told: list[str] = []
        host.on_lost(lambda: told.append("lost"))
        host.on_ready(lambda: told.append("ready"))
        await host.submit([("kept", 1)])
        node.faults.write_error = errno.ENOSPC
        node.faults.writes_go_on.clear()
        failed = [host.submit([("late", number)]) for number in range(3)]
        await asyncio.sleep(0.02)
        failed.append(host.submit([("late", 9)]))
        node.faults.writes_go_on.set()
        for outcome in failed:
            with pytest.raises(Refused) as caught:
                await outcome
            assert caught.value.reason is Reason.STORAGE_ERROR
        assert not host.is_ready
        assert told == ["lost"]
        for attempt in (
            host.submit([("early", 1)]),
            host.decide(lambda _: ([("early", 1)], None)),
        ):
            with pytest.raises(Refused) as caught:
                await attempt
            assert caught.value.reason is Reason.STORAGE_ERROR
        node.faults.write_error = None
        await until(lambda: host.is_ready)
        seen = await host.decide(lambda table: ([("next", 2)], dict(table.numbers)))
        assert seen == {"kept": 1, "late": 9}
        assert told == ["lost", "ready"]
        assert host.state.numbers == {"kept": 1, "late": 9, "next": 2}


async def test_a_stopped_replica_fails_decisions_with_its_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node)
        node.faults.sync_error = errno.EIO
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                await host.decide(lambda _: ([("a", 1)], None))
            assert caught.value.reason is Reason.STORAGE_ERROR
        node.faults.sync_error = None


def test_a_record_that_is_not_in_its_place_is_not_applied(tmp_path: Path) -> None:
    async def fill() -> None:
        async with running(tmp_path) as node:
            host = await host_on(node)
            for number in range(5):
                await host.submit([("n", number)])

    async def scenario() -> None:
        async with running(tmp_path) as node:
            with pytest.raises(Refused) as caught:
                await host_on(node)
            assert caught.value.reason is Reason.STORAGE_ERROR
            (replica,) = node.replicas.values()
            assert "instead of" in str(replica.stopped_because)

    run(fill)
    (segment,) = tmp_path.rglob("*.log")
    misplace_batch(segment)
    run(scenario)


def test_a_damaged_or_future_snapshot_is_left_aside_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "table.snapshot"
        async with running(tmp_path) as node:
            host = await host_on(node)
            await host.submit([("a", 1)])
            await host.close()
            whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"!")
        async with running(tmp_path) as node:
            host = await host_on(node)
            assert (host.state.numbers, host.state.applied) == ({"a": 1}, 1)
            assert not path.exists()
            await host.submit([("b", 2)])
            await host.close()

    run(scenario)

    async def shorter_log() -> None:
        future = (tmp_path / "table.snapshot").read_bytes()
        other = tmp_path / "other"
        async with running(other) as node:
            (other / "table.snapshot").write_bytes(future)
            host = await host_on(node)
            assert host.state.numbers == {}
            assert not (other / "table.snapshot").exists()

    run(shorter_log)


async def test_a_snapshot_of_another_format_is_left_aside(tmp_path: Path) -> None:
    path = tmp_path / "table.snapshot"
    async with running(tmp_path) as node:
        host = await host_on(node)
        await host.submit([("a", 1)])
        write_snapshot(node.file_system, path, Snapshot(data=b"not json", offset=Offset(1)))
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert host.state.numbers == {"a": 1}
        assert not path.exists()


async def test_compaction_never_brings_a_deleted_name_back(tmp_path: Path) -> None:
    """A tombstone may go only after a snapshot that has seen it, or a replay would miss it."""
    async with running(tmp_path) as node:
        host = await host_on(node)
        await host.submit([("doomed", 1)])
        await host.write_snapshot()
        await host.submit([("doomed", None)])
        for number in range(100):
            await host.submit([("filler", number)])
        for _ in range(3):
            node.clock.ms += 5 * 24 * 3600 * 1000
            await host.replica.maintain(node.clock.ms)
    async with running(tmp_path) as node:
        host = await host_on(node)
        assert host.state.numbers == {"filler": 99}


async def test_a_caller_that_gives_up_does_not_disturb_the_rest(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        host = await host_on(node)
        node.faults.writes_go_on.clear()
        impatient = asyncio.create_task(host.decide(lambda _: ([("a", 1)], None)))
        patient = asyncio.create_task(host.decide(lambda _: ([("b", 2)], None)))
        await asyncio.sleep(0.01)
        impatient.cancel()
        await asyncio.sleep(0)
        node.faults.writes_go_on.set()
        await patient
        assert host.state.numbers == {"a": 1, "b": 2}
