"""Readers in real threads beside a writer that cuts its log: each answer was true at one moment.

Every cut is followed by a term that was never used before. So index and term name one entry for
ever (the Raft paper calls it log matching), and whatever a reader gets can be checked against all
that was ever written, without stopping anybody.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.model.ids import LogIndex, Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import decode_records, parse_header
from penstock.records.own_entries import OwnKind, build_gap
from penstock.records.record import Record
from penstock.storage.file_system import RealFileSystem
from penstock.storage.log import EntriesCut, EntriesGone, Log, LogEntry
from penstock.storage.log_entries import DATA, GAP
from tests.unit.storage.logs import START_MS, Bench, batch, checkpoint, own, record
from tests.unit.storage.test_concurrency import PATIENCE_S
from tests.unit.storage.test_concurrency import _switch_threads_often as _switch_threads_often

WORK_S = 1.5
# Of records that are cut off before anybody commits them.
LATE_MS = START_MS + 10**9
PLAIN = TopicConfig(segment_bytes=2000, index_interval_bytes=300)
COMPACTED = TopicConfig(
    segment_bytes=2000,
    index_interval_bytes=300,
    cleanup_compact=True,
    min_cleanable_dirty_ratio=0.1,
)


class Written(NamedTuple):
    first_index: int
    last_index: int
    term: int
    kind: int
    batch: bytes
    term_before: int


class History:
    """All that was ever appended to one log; what is committed stays."""

    def __init__(self, log: Log, *, is_compacted: bool) -> None:
        self.log = log
        self.is_compacted = is_compacted
        # By index and term; filled before the log shows an entry to anybody.
        self.by_place: dict[tuple[int, int], Written] = {}
        self.terms_at: dict[int, set[int]] = {}
        self.committed_index = log.last_index
        self.committed_offset: int = log.end_offset
        self.last_term: int = log.last_term

    def append(self, batches: list[bytes]) -> None:
        last, term_before = self.log.last_index, self.log.last_term
        for each in batches:
            header = parse_header(each)
            first, last = last + 1, last + max(1, header.last_offset_delta + 1)
            kind = OwnKind.NEW_TERM if header.is_own else GAP if header.is_gap else DATA
            term = header.leader_epoch
            written = Written(first, last, term, kind, each, term_before)
            for index in range(first, last + 1):
                self.by_place[index, term] = written
                self.terms_at.setdefault(index, set()).add(term)
            term_before = term
        self.log.append(batches)

    def begin_term(self) -> None:
        self.last_term += 1
        self.append([own(self.log, OwnKind.NEW_TERM, term=self.last_term)])

    def add(self, records: int, *, is_lost: bool) -> None:
        begin = self.log.end_offset
        made = [
            record(
                b"%d in %d" % (offset, self.last_term),
                b"key %d" % (offset % 7),
                LATE_MS if is_lost else START_MS + offset,
            )
            for offset in range(begin, begin + records)
        ]
        self.append([batch(begin, *made, term=self.last_term)])

    def commit(self) -> None:
        self.log.sync()
        self.committed_offset = self.log.end_offset
        self.committed_index = self.log.last_index

    # What readers are given is checked here

    def check_entries(self, low: int, found: list[LogEntry]) -> None:
        index, term = low, 0
        for entry in found:
            assert entry.first_index == index, "entries without holes"
            if entry.kind == GAP:
                self._check_gap(entry)
            else:
                self._check_entry(entry, term)
            index, term = entry.index + 1, entry.term

    def _check_gap(self, entry: LogEntry) -> None:
        for index in range(entry.first_index, entry.index + 1):
            is_gap = self.by_place[index, entry.term].kind == GAP
            is_compacted = self.is_compacted and index <= self.committed_index
            assert is_gap or is_compacted, f"{index} is a gap that nobody made"

    def _check_entry(self, entry: LogEntry, term_before: int) -> None:
        written = self.by_place[entry.index, entry.term]
        assert term_before in (0, written.term_before), "two entries that never were neighbours"
        if self.is_compacted and written.kind == DATA:
            self.check_records(list(decode_records(entry.batch)), entry.term)
        else:
            assert (entry.first_index, entry.batch) == (written.first_index, written.batch)

    def check_records(self, records: list[Record], term: int) -> None:
        assert all(each.value == b"%d in %d" % (each.offset, term) for each in records)


class Stress:
    """One writer, several readers, for a bounded time; the first failure is raised."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.log = history.log
        self.end = time.monotonic() + WORK_S
        self.counts: dict[str, int] = {}
        self._errors: list[BaseException] = []

    def run(self, *readers: Callable[[random.Random], None]) -> None:
        work = [self._write_once, *readers]
        self._write_once(random.Random(0))
        threads = [
            threading.Thread(target=self._repeat, args=(one, number), daemon=True)
            for number, one in enumerate(work)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        if self._errors:
            raise self._errors[0]
        assert not any(thread.is_alive() for thread in threads), "it hangs"
        assert self.counts.keys() == {one.__name__ for one in work}

    def _repeat(self, work: Callable[[random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        try:
            # At least once, also where the machine gives this thread no time before the end.
            while not self._errors:
                work(chance)
                self.counts[work.__name__] = self.counts.get(work.__name__, 0) + 1
                if time.monotonic() >= self.end:
                    break
        except BaseException as error:
            self._errors.append(error)

    # The writer

    def _write_once(self, chance: random.Random) -> None:
        history, log = self.history, self.log
        history.begin_term()
        for _ in range(chance.randint(1, 6)):
            history.add(chance.randint(1, 4), is_lost=False)
        history.commit()
        places = self._lose(chance)
        log.truncate_to_index(LogIndex(chance.choice(places)))
        if chance.random() < 0.5:
            self._lose(chance)
        log.truncate_to_index(LogIndex(places[0]))
        if log.checkpoint_due() and log.last_index == history.committed_index:
            checkpoint(log)
        if chance.random() < 0.2:
            log.delete_before(Offset(max(log.start_offset, history.committed_offset - 150)))

    def _lose(self, chance: random.Random) -> list[int]:
        """Appends what will not be committed; returns where it may be cut."""
        history, log = self.history, self.log
        history.begin_term()
        places = [log.last_index]
        for _ in range(chance.randint(1, 5)):
            begin = log.last_index + 1
            if chance.random() < 0.3:
                span, term = chance.randint(2, 9), log.last_term
                history.append([build_gap(offset=log.end_offset, span=span, term=term)])
                places += range(begin, log.last_index + 1)
                continue
            places.append(begin)
            if chance.random() < 0.3:
                history.begin_term()
            else:
                history.add(chance.randint(1, 5), is_lost=True)
        return places

    # The readers

    def read_committed_entries(self, chance: random.Random) -> None:
        """What a leader sends to a follower that was away."""
        low, end = self.log.first_index, self.history.committed_index
        while low <= end:
            try:
                found = self.log.entries(LogIndex(low), LogIndex(end + 1), 1500)
            except EntriesGone:
                return
            self.history.check_entries(low, found)
            low = LogIndex(found[-1].index + 1)

    def read_last_entries(self, chance: random.Random) -> None:
        """What may be cut at any moment."""
        place = chance.choice(list(self.history.by_place.values())[-40:])
        try:
            high = LogIndex(self.log.last_index + 1)
            found = self.log.entries(LogIndex(place.first_index), high, 1500)
        except (EntriesGone, EntriesCut):
            return
        self.history.check_entries(place.first_index, found)

    def look_at_terms(self, chance: random.Random) -> None:
        index = self.log.last_index
        try:
            term = self.log.term_at(index)
            offset = self.log.offset_after(index)
        except (EntriesGone, EntriesCut):
            return
        assert term in self.history.terms_at[index]
        assert offset <= index

    def look_at_starts(self, chance: random.Random) -> None:
        history = self.history
        index = LogIndex(chance.randint(self.log.first_index, self.log.last_index))
        is_committed = index <= history.committed_index
        try:
            start = self.log.entry_start(index)
        except EntriesGone:
            return
        except EntriesCut:
            if is_committed:
                raise
            return
        written = [history.by_place[index, term] for term in tuple(history.terms_at[index])]
        starts = {index if each.kind == GAP else each.first_index for each in written}
        assert start in starts or (history.is_compacted and is_committed)

    def read_records(self, chance: random.Random) -> None:
        end = self.history.committed_offset
        offset = chance.randint(self.log.start_offset, end)
        found = self.log.read(Offset(offset), 700, Offset(end))
        if found is None:
            return
        data = memoryview(found.read())
        found.release()
        while len(data):
            header = parse_header(data)
            assert not header.is_own
            assert header.next_offset <= end
            self.history.check_records(list(decode_records(data)), header.leader_epoch)
            data = data[header.size :]

    def look_at_times(self, chance: random.Random) -> None:
        end = self.history.committed_offset
        wanted = chance.randint(0, end - 1)
        found = self.log.offset_for_timestamp(START_MS + wanted, Offset(end))
        if not self.history.is_compacted:
            assert found is not None
            assert found.offset == max(wanted, min(found.offset, self.log.start_offset))
        last = self.log.offset_of_max_timestamp(Offset(end))
        assert last is not None
        assert last.offset == end - 1

    def compact(self, chance: random.Random) -> None:
        self.log.compact(START_MS, Offset(self.history.committed_offset))

    def scrub(self, chance: random.Random) -> None:
        """In slices, between which the log may change as well."""
        offset, end = -1, 0
        while offset < end:
            start = Offset(max(0, offset))
            found = self.log.scrub(lambda: time.monotonic() > self.end, start, 900)
            if found.offset <= offset:
                return
            offset, end = found.offset, found.end_offset


def stress(directory: Path, config: TopicConfig, *, open_max: int = 3) -> Stress:
    bench = Bench(RealFileSystem(), config, directory=directory / "0", open_max=open_max)
    return Stress(History(bench.create(), is_compacted=config.cleanup_compact))


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_entries_are_those_of_one_moment_beside_a_cut(tmp_path: Path, config: TopicConfig) -> None:
    work = stress(tmp_path, config)
    more = [work.compact] if config.cleanup_compact else []
    work.run(
        work.read_committed_entries, work.read_last_entries, work.look_at_starts, work.scrub, *more
    )


def test_terms_records_and_times_are_those_of_one_moment_beside_a_cut(tmp_path: Path) -> None:
    work = stress(tmp_path, PLAIN)
    work.run(work.look_at_terms, work.look_at_starts, work.read_records, work.look_at_times)
