"""The segment log as Raft sees it: entries by index instead of batches by offset."""

from collections.abc import Sequence

from penstock.model.ids import LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry
from penstock.replication.cold_entries import ColdEntries
from penstock.replication.entry_codec import entry_of
from penstock.replication.recent_entries import GroupEntries
from penstock.replication.replica_parts import ReplicaParts
from penstock.storage.log import EntriesGone, Log


class StoredLog:
    """A `LogView`. Everything it tells is as new as the log's last write, or newer than the core
    was told, which the core hides behind what it handed out since."""

    __slots__ = ("_log", "cold", "recent")

    def __init__(self, log: Log, parts: ReplicaParts) -> None:
        self._log = log
        # What a leader has at hand for its followers, and what it must read for them.
        self.recent: GroupEntries = parts.recent.group()
        self.cold = ColdEntries(log, parts.follower_reads, parts.raft_settings.append_bytes_max)

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

    def is_at_hand(self, low: LogIndex, follower: ReplicaId) -> bool:
        return self.recent.has(low) or self.cold.is_at_hand(low, follower)

    def entries(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry]:
        found = self.recent.read(low, high, bytes_max) or self.cold.get(low, high, bytes_max)
        if found is not None:
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

    # What becomes of the log

    def truncate(self, index: int) -> None:
        self.recent.truncate(index)
        self.cold.clear()

    def clear(self) -> None:
        """It is another one now, or none."""
        self.recent.clear()
        self.cold.clear()
