"""Power loss and kill at every single change of the disk, in every kind of work a log does.

After each crash the log opens without complaint, holds everything that was acknowledged (synced)
and nothing that was never written, and goes on from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.own_entries import OwnKind
from penstock.records.record import Record
from penstock.storage.log import Log, LogBase, OwnEntry
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss
from tests.unit.storage.logs import (
    START_MS,
    Bench,
    batch,
    checkpoint,
    fill,
    read_all,
    record,
)

SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=1)
COMPACTED = TopicConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=10,
)


@dataclass
class Promises:
    """What the scenario was promised before the crash."""

    written: dict[int, bytes | None] = field(default_factory=dict)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    acked_end: int = 0
    # Between these two the start may lie: asked for, and promised.
    start_asked: int = 0
    start_acked: int = 0
    # Raft's own entries by their indices; those up to `acked_index` were synced.
    own: dict[int, OwnEntry] = field(default_factory=dict)
    acked_index: int = 0


class Run:
    def __init__(self, disk: FaultFileSystem, config: TopicConfig) -> None:
        self.bench = Bench(disk, config)
        self.promises = Promises()
        self.now_ms = START_MS
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        if self._log is None:
            self._log = self.bench.create()
        return self._log

    def append(
        self,
        count: int,
        *,
        keys: int = 0,
        per_append: int = 1,
        tombstone: int = -1,
        sync: bool = True,
    ) -> None:
        for _ in range(count):
            base = self.log.end_offset
            batches = []
            for offset in range(base, base + per_append):
                key = b"k%d" % (offset % keys) if keys else None
                value = None if keys and offset % keys == tombstone else b"v%d" % offset + bytes(20)
                self.promises.written[offset] = value
                self.promises.keys[offset] = key
                batches.append(
                    batch(offset, record(value, key, self.now_ms), term=self.log.last_term)
                )
            self.log.append(batches)
            if sync:
                self.sync()

    def append_own(self, kind: OwnKind, payload: bytes = b"") -> None:
        log = self.log
        term = log.last_term + (kind is OwnKind.NEW_TERM)
        entry = OwnEntry(log.last_index + 1, term, log.end_offset, kind, payload)
        self.promises.own[entry.index] = entry
        log.append([entry.batch()])
        self.sync()

    def sync(self) -> None:
        self.log.sync()
        self.promises.acked_end = self.log.end_offset
        self.promises.acked_index = self.log.last_index

    def checkpoint(self) -> None:
        checkpoint(self.log, b"state at %d" % self.log.end_offset)

    def delete_before(self, offset: int) -> None:
        self.promises.start_asked = offset
        self.log.delete_before(Offset(offset))
        self.promises.start_acked = offset


def appends(run: Run) -> None:
    run.append(12)
    run.append(3, per_append=15)


def checkpoints(run: Run) -> None:
    for _ in range(4):
        run.append(6)
        run.checkpoint()
    run.append(2)


def lazy_syncs(run: Run) -> None:
    """Only the checkpoint syncs, as under the looser flush policies."""
    for _ in range(3):
        run.append(10, sync=False)
        run.checkpoint()
        run.promises.acked_end = run.log.end_offset
    run.append(10, sync=False)


def deletes(run: Run) -> None:
    run.append(30)
    run.delete_before(12)
    run.append(4)
    run.delete_before(run.log.end_offset)
    run.append(4)


def retention(run: Run) -> None:
    run.append(30)
    run.checkpoint()
    run.promises.start_asked = run.log.end_offset
    run.log.apply_retention(run.now_ms, run.log.end_offset)
    run.append(3)


def elections(run: Run) -> None:
    """Raft's own entries at the ends and beginnings of segments, and log starts between them."""
    for number in range(5):
        run.append_own(OwnKind.NEW_TERM)
        run.append(5)
        run.append_own(OwnKind.MEMBERSHIP, b"voters of %d" % number)
        if number % 2:
            run.append_own(OwnKind.LOG_START)
            run.delete_before(run.log.end_offset - number)
        if number == 2:
            run.checkpoint()
    run.append_own(OwnKind.LOG_START)
    run.delete_before(run.log.end_offset)
    run.append_own(OwnKind.NEW_TERM)
    run.append(1)


def compacted_elections(run: Run) -> None:
    for number in range(4):
        run.append_own(OwnKind.NEW_TERM)
        run.append(12, keys=5, tombstone=3)
        run.append_own(OwnKind.MEMBERSHIP, b"voters of %d" % number)
        run.log.compact(run.now_ms + 1000 * number, run.log.end_offset)


def compactions(run: Run) -> None:
    run.append(40, keys=5, tombstone=3)
    run.log.compact(run.now_ms, run.log.end_offset)
    run.append(20, keys=4)
    run.checkpoint()
    run.log.compact(run.now_ms + 1000, run.log.end_offset)
    run.append(10, keys=5)


SCENARIOS: dict[str, tuple[Callable[[Run], None], TopicConfig]] = {
    "appends": (appends, SMALL),
    "checkpoints": (checkpoints, SMALL),
    "lazy syncs": (lazy_syncs, SMALL),
    "deletes": (deletes, SMALL),
    "retention": (retention, SMALL),
    "elections": (elections, SMALL),
    "compactions": (compactions, COMPACTED),
    "compacted elections": (compacted_elections, COMPACTED),
}


def run_until_crash(name: str, steps: int) -> tuple[Run, bool]:
    work, config = SCENARIOS[name]
    run = Run(FaultFileSystem(steps_left=steps), config)
    try:
        work(run)
    except PowerLoss:
        return run, True
    return run, False


def survivors(disk: FaultFileSystem, steps: int) -> list[FaultFileSystem]:
    return [disk.after_kill(), *(disk.after_power_loss(steps * 10 + seed) for seed in range(2))]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_is_survived(name: str) -> None:
    steps = 0
    crashed = True
    while crashed:
        run, crashed = run_until_crash(name, steps)
        assert isinstance(run.bench.disk, FaultFileSystem)
        for disk in survivors(run.bench.disk, steps):
            check_survivor(disk, run)
        steps += 1
    assert steps > 50


def check_survivor(disk: FaultFileSystem, run: Run) -> None:
    bench = Bench(disk, run.bench.config)
    if not Log.exists(bench.directory, file_system=disk):
        assert run.promises.acked_end == 0
        return
    seen: list[int] = []
    log = bench.open(lambda header: seen.append(header.base_offset))
    check_promises(log, run.promises, is_compacted=bench.config.cleanup_compact)
    if log.state:
        assert log.state == b"state at %d" % log.state_offset
    assert all(offset >= log.state_offset for offset in seen)
    assert {found.offset for found in read_all(log)} <= {*seen, *range(log.state_offset)}
    # The log goes on, and a second crash finds it whole.
    check_own(log, run.promises)
    end = log.end_offset
    fill(log, 9, term=log.last_term + 1)
    again = Bench(disk.after_power_loss(1), run.bench.config).open()
    assert again.end_offset == end + 9
    assert [found.offset for found in read_all(again)][-9:] == list(range(end, end + 9))


def check_promises(log: Log, promises: Promises, *, is_compacted: bool) -> None:
    assert promises.acked_end <= log.end_offset <= len(promises.written)
    assert promises.start_acked <= log.start_offset <= promises.start_asked
    found = [one for one in read_all(log) if one.offset >= log.start_offset]
    for one in found:
        assert promises.written[one.offset] == one.value
    kept = {one.offset for one in found}
    if not is_compacted:
        assert kept == set(range(log.start_offset, log.end_offset))
        return
    check_latest(log, promises, found, kept)


def check_own(log: Log, promises: Promises) -> None:
    """All of Raft's entries that were synced are there, each with the index that it had."""
    assert log.last_index >= promises.acked_index
    assert all(promises.own[entry.index] == entry for entry in log.own_entries)
    kept = {entry.index for entry in log.own_entries}
    lost = [index for index in promises.own if log.base.index < index <= promises.acked_index]
    assert set(lost) <= kept
    low = log.first_index
    while low <= log.last_index:
        some = log.entries(low, LogIndex(log.last_index + 1), 1000)
        assert some[0].first_index == low
        low = LogIndex(some[-1].index + 1)
    steps = [(i, e.payload) for i, e in promises.own.items() if e.kind is OwnKind.MEMBERSHIP]
    found = log.memberships()
    inside = [step for step in steps if step[0] <= log.last_index]
    assert found == [(0, b""), *inside][-len(found) :]


def check_latest(log: Log, promises: Promises, found: list[Record], kept: set[int]) -> None:
    """The last record of each key is there, unless it is a tombstone that had its time."""
    latest = {promises.keys[offset]: offset for offset in range(log.end_offset)}
    for offset in latest.values():
        assert offset in kept or promises.written[offset] is None
    for one in found:
        if promises.written[latest[one.key]] is None and latest[one.key] not in kept:
            raise AssertionError(f"the tombstone of {one.key!r} went before offset {one.offset}")


@pytest.mark.parametrize("offset", [0, 5, 11, 29])
def test_a_crash_while_a_log_is_cut_leaves_the_cut_or_what_was_there(offset: int) -> None:
    for steps in range(1000):
        disk = FaultFileSystem()
        log = Bench(disk, SMALL).create()
        fill(log, 30)
        log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=Offset(30))
        disk.steps_left = steps
        try:
            log.truncate_to_index(LogIndex(offset + 1))
        except PowerLoss:
            for survivor in survivors(disk, steps):
                end = Bench(survivor, SMALL).open().end_offset
                assert offset <= end <= 30
            continue
        assert steps > 3
        return
    raise AssertionError("the log was never cut")


@pytest.mark.parametrize("index", [1, 2, 9, 20, 26])
def test_a_crash_while_raft_cuts_its_log_leaves_the_cut_or_what_was_there(index: int) -> None:
    for steps in range(1000):
        disk = FaultFileSystem()
        run = Run(disk, SMALL)
        for _ in range(4):
            run.append_own(OwnKind.NEW_TERM)
            run.append_own(OwnKind.MEMBERSHIP)
            run.append(5)
        before = run.log.last_index
        run.log.checkpoint(state=b"", state_offset=Offset(0), flushed_offset=Offset(0))
        disk.steps_left = steps
        try:
            run.log.truncate_to_index(LogIndex(index))
            run.promises.own = {i: one for i, one in run.promises.own.items() if i < index}
            run.append_own(OwnKind.NEW_TERM)
            run.append(3)
        except PowerLoss:
            for survivor in survivors(disk, steps):
                log = Bench(survivor, SMALL).open()
                assert index - 1 <= log.last_index <= max(before, index + 3)
                log.scrub(lambda: False)
                fill(log, 3, term=log.last_term + 1)
                assert Bench(survivor, SMALL).open().last_index == log.last_index
            continue
        assert steps > 3
        for survivor in survivors(disk, steps):
            check_own(Bench(survivor, SMALL).open(), run.promises)
        return
    raise AssertionError("the log was never cut")


@pytest.mark.parametrize("base_offset", [0, 11, 13, 30, 500])
@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["plain", "compacted"])
def test_a_crash_while_a_log_is_reset_leaves_one_log_or_the_other(
    base_offset: int, config: TopicConfig
) -> None:
    base = LogBase(base_offset, base_offset + 7, 9, b"members", 3)
    for steps in range(1000):
        disk = FaultFileSystem()
        run = Run(disk, config)
        run.append_own(OwnKind.NEW_TERM)
        run.append(30, keys=3)
        run.checkpoint()
        run.append(4, keys=3, sync=False)
        if config.cleanup_compact:
            run.log.compact(run.now_ms, Offset(30))
        disk.steps_left = steps
        is_reset = False
        try:
            run.log.reset(base, state=b"installed")
            is_reset = True
        except PowerLoss:
            pass
        for survivor in survivors(disk, steps):
            check_reset(survivor, config, base, is_reset=is_reset)
        if is_reset:
            assert steps > 10
            return
    raise AssertionError("the log was never reset")


def check_reset(
    disk: FaultFileSystem, config: TopicConfig, base: LogBase, *, is_reset: bool
) -> None:
    log = Bench(disk, config).open()
    if log.base.term == 9:
        assert (log.base, log.last_index, log.last_term) == (base, base.index, 9)
        assert (log.start_offset, log.end_offset) == (base.offset, base.offset)
        assert (log.state, log.state_offset) == (b"installed", base.offset)
        assert log.memberships() == [(3, b"members")]
        assert disk.names(log.directory) == ["checkpoint"]
    else:
        assert not is_reset
        assert 30 <= log.end_offset <= 34
        assert log.state == b"state at 30"
    end = log.end_offset
    fill(log, 12, term=10)
    again = Bench(disk.after_power_loss(0), config).open()
    assert again.end_offset == end + 12
    assert [one.offset for one in read_all(again)][-12:] == list(range(end, end + 12))


@pytest.mark.parametrize("per_append", [1, 20])
def test_a_full_disk_at_every_byte_is_survived(per_append: int) -> None:
    """Appends fail and heal while the room grows byte by byte; then the power goes."""
    for room in range(0, 1500, 37):
        disk = FaultFileSystem(bytes_max=600 + room)
        run = Run(disk, SMALL)
        try:
            run.append(40 // per_append, per_append=per_append)
        except OSError:
            run.promises.written = {
                offset: value
                for offset, value in run.promises.written.items()
                if offset < run.log.end_offset
            }
        check_promises(run.log, run.promises, is_compacted=False)
        disk.bytes_max = None
        for survivor in survivors(disk, room):
            assert Bench(survivor, SMALL).open().end_offset >= run.promises.acked_end
        run.append(2)
        for survivor in survivors(disk, room):
            check_survivor(survivor, run)
