"""The segment log as Raft sees it: entries by index instead of batches by offset."""

from collections.abc import Sequence

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import Entry
from penstock.replication.entry_codec import entry_of
from penstock.replication.recent_entries import GroupEntries
from penstock.storage.log import EntriesGone, Log


class StoredLog:
    """A `LogView`. Everything it tells is as new as the log's last write, or newer than the core
    was told, which the core hides behind what it handed out since."""

    __slots__ = ("_log", "_recent")

    def __init__(self, log: Log, recent: GroupEntries) -> None:
        self._log = log
        self._recent = recent

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self._log.first_index)

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self._log.last_index)

    # A worker thread may move the log's begin at any moment: what is gone is told as such.

    def term_at(self, index: LogIndex) -> Term | None:
        try:
            return self._log.term_at(index)
        except EntriesGone:
            return None

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry]:
        found = self._recent.read(low, high, bytes_max)
        if found:
            return found
        try:
            return [entry_of(stored) for stored in self._log.entries(low, high, bytes_max)]
        except EntriesGone:
            return ()

    def entry_start(self, index: LogIndex) -> LogIndex:
        try:
            return self._log.entry_start(index)
        except EntriesGone:
            return index
