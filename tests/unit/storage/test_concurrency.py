"""A reader beside the writer, retention and compaction, in real threads on a real disk."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import crc_matches, decode_records, parse_header
from penstock.records.own_entries import OwnKind
from penstock.storage.file_system import RealFileSystem
from penstock.storage.log import EntriesGone, Log
from tests.unit.storage.logs import START_MS, Bench, batch, checkpoint, headers, own, record

# What the writer appends, and for how many seconds at most: threads that never wait take turns with
# it, so on a slow or busy machine it stops earlier.
SHORT = (350, 4.0)
LONG = (1_400, 30.0)
# Only what hangs takes so long, however busy the machine is.
PATIENCE_S = 100


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Crew:
    """Threads that work on one log until its writer is done; the first failure is raised."""

    def __init__(self, log: Log, *, batches: int, work_s_max: float) -> None:
        self.log = log
        self.batches = batches
        self.work_s_max = work_s_max
        self.safe_end = 0
        self.is_done = False
        self.rounds = 0
        self._errors: list[BaseException] = []

    def run(self, *work: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._guard, args=(one,), daemon=True) for one in work]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._errors:
            raise self._errors[0]
        assert not any(thread.is_alive() for thread in threads), "it hangs"

    def _count_rounds(self, rounds_max: int) -> Iterator[int]:
        end = time.monotonic() + self.work_s_max
        while self.rounds < rounds_max and time.monotonic() < end:
            yield self.rounds
            self.rounds += 1

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self.is_done = self.is_done or work in (self.write, self.elect)

    def write(self) -> None:
        for number in self._count_rounds(self.batches):
            offset = self.log.end_offset
            one = record(b"%d" % offset, b"key %d" % (number % 10))
            self.log.append([batch(offset, one)])
            self.safe_end = offset + 1
            if self.log.checkpoint_due():
                checkpoint(self.log)
        self.is_done = True

    def elect(self) -> None:
        """Writes uncommitted entries, cuts them off, and commits others in their place."""
        log = self.log
        for number in self._count_rounds(self.batches // 4):
            begin = log.last_index + 1
            for _ in range(1 + number % 3):
                log.append([own(log, OwnKind.NEW_TERM, term=log.last_term + 1)])
                log.append([batch(log.end_offset, record(b"lost", b"key"), term=log.last_term)])
            log.append([own(log, OwnKind.MEMBERSHIP)])
            log.truncate_to_index(LogIndex(begin + number % 2))
            log.append([own(log, OwnKind.NEW_TERM, term=log.last_term + 1)])
            for _ in range(3):
                offset = log.end_offset
                one = record(b"%d" % offset, b"key %d" % (number % 10))
                log.append([batch(offset, one, term=log.last_term)])
            log.sync()
            self.safe_end = log.end_offset
            if log.checkpoint_due():
                checkpoint(log)
        self.is_done = True

    def follow(self) -> None:
        """What a leader does for a follower: reads what is committed, by index.

        At least once to its end, though it began late or what it read was deleted meanwhile.
        """
        log, index = self.log, 0
        while not self.is_done or (index == 0 and not self._errors):
            low = log.first_index
            end = log.index_before(Offset(max(self.safe_end, log.base.offset)))
            if low <= end:
                with contextlib.suppress(EntriesGone):
                    index = self._follow_once(low, end)

    def _follow_once(self, low: int, end: int) -> int:
        index = low
        while index <= end:
            for entry in self.log.entries(LogIndex(index), LogIndex(end + 1), 5000):
                assert entry.first_index == index
                assert entry.term == self.log.term_at(LogIndex(index))
                index = entry.index + 1
        return index

    def read(self) -> None:
        offset = 0
        while not self.is_done or offset < self.safe_end:
            offset = self._read_once(max(offset, self.log.start_offset))

    def _read_once(self, offset: int) -> int:
        end = self.safe_end
        found = self.log.read(Offset(offset), 700, Offset(end))
        if found is None:
            return end
        data = memoryview(found.read())
        found.release()
        while len(data):
            header = parse_header(data)
            assert not header.is_own
            assert crc_matches(data, 0, header)
            assert header.next_offset <= end
            for one in decode_records(data):
                assert one.value == b"%d" % one.offset
            offset = header.next_offset
            data = data[header.size :]
        return offset

    def retain(self) -> None:
        while not self.is_done:
            self.log.apply_retention(START_MS, Offset(self.safe_end))

    def compact(self) -> None:
        while not self.is_done:
            self.log.compact(START_MS, Offset(self.safe_end))

    def scrub(self) -> None:
        while not self.is_done:
            self.log.scrub(lambda: self.is_done)

    def look_up(self) -> None:
        while not self.is_done:
            found = self.log.offset_for_timestamp(START_MS, Offset(self.safe_end))
            assert found is None or found.timestamp_ms == START_MS


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=pytest.mark.soak),
    ]
)
def crew(tmp_path: Path, request: pytest.FixtureRequest) -> Crew:
    config = TopicConfig(
        segment_bytes=2000,
        index_interval_bytes=300,
        retention_bytes=6000,
        cleanup_compact=True,
        min_cleanable_dirty_ratio=0.1,
    )
    bench = Bench(RealFileSystem(), config, directory=tmp_path / "0", open_max=3)
    batches, work_s_max = request.param
    return Crew(bench.create(), batches=batches, work_s_max=work_s_max)


def test_readers_see_whole_batches_while_the_writer_rolls(crew: Crew) -> None:
    crew.log.config = TopicConfig(segment_bytes=2000, index_interval_bytes=300)
    crew.run(crew.write, crew.read, crew.read)
    assert len(headers(crew.log)) == crew.rounds > 0


def test_readers_live_with_retention(crew: Crew) -> None:
    crew.run(crew.write, crew.read, crew.retain, crew.look_up)


def test_readers_live_with_compaction_and_scrubbing(crew: Crew) -> None:
    crew.log.config = TopicConfig(
        segment_bytes=2000,
        index_interval_bytes=300,
        cleanup_delete=False,
        cleanup_compact=True,
        min_cleanable_dirty_ratio=0.1,
    )
    crew.run(crew.write, crew.read, crew.compact, crew.scrub)


def test_clients_never_see_an_entry_of_raft_while_it_cuts_its_log(crew: Crew) -> None:
    crew.log.config = TopicConfig(segment_bytes=2000, index_interval_bytes=300)
    crew.run(crew.elect, crew.read, crew.read, crew.follow, crew.scrub)


def test_elections_beside_retention_and_compaction(crew: Crew) -> None:
    crew.run(crew.elect, crew.read, crew.follow, crew.retain, crew.compact, crew.scrub)


def test_everything_at_once(crew: Crew) -> None:
    crew.run(crew.write, crew.read, crew.retain, crew.compact, crew.scrub, crew.look_up)
