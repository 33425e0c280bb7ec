"""What a replica does with the messages of a leader whose term it accepts."""

from penstock.model.ids import LogIndex
from penstock.raft.core import Core
from penstock.raft.entries import NO_TERM, Entry, EntryKind
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    AppendResponse,
    CommitNotice,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    PeerFault,
)

DATA = EntryKind.DATA
GAP = EntryKind.GAP


class Follower:
    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def on_append(self, message: AppendRequest) -> None:
        core = self._core
        self._check(message)
        if message.previous_index < core.commit_index:
            message = self._without_committed(message)
        previous_index = message.previous_index
        if not self.agrees_at(previous_index, message.previous_term):
            self._reject(message)
            return
        last_index = previous_index
        if message.entries:
            last_index = message.entries[-1].index
            self.store(previous_index, message.entries)
        commit_index = message.commit_index
        core.commit_to(commit_index if commit_index < last_index else last_index)
        self._acknowledge(message, last_index)

    def _check(self, message: AppendRequest) -> None:
        expected, term = message.previous_index + 1, message.previous_term
        for entry in message.entries:
            if entry.span < 1 or entry.index - entry.span + 1 != expected or entry.term < term:
                raise PeerFault(f"{message.sender} sent entries that do not follow each other")
            if entry.span > 1 and entry.kind is not DATA and entry.kind is not GAP:
                raise PeerFault(f"{message.sender} sent an entry of its own with a span")
            expected, term = entry.index + 1, entry.term
        if term > message.term:
            raise PeerFault(f"{message.sender} sent entries of a term after its own")

    def _without_committed(self, message: AppendRequest) -> AppendRequest:
        """What is committed here is the same in every leader's log, so only the rest is news."""
        core = self._core
        commit_term = core.log.term_at(core.commit_index)
        assert commit_term is not None
        news = [entry for entry in message.entries if entry.index > core.commit_index]
        if news and news[0].first_index <= core.commit_index:
            # Only in a gap, here or there, can the commit index lie inside an entry.
            news[0] = news[0].cut_before(core.commit_index + 1)
        return message._replace(
            previous_index=core.commit_index, previous_term=commit_term, entries=tuple(news)
        )

    def agrees_at(self, index: int, term: int) -> bool:
        return self._core.log.term_at(index) == term

    def store(self, previous_index: int, entries: tuple[Entry, ...]) -> None:
        """Keeps what is there already: a late message must not undo what a later one brought."""
        core = self._core
        if previous_index < core.log.last_index:
            entries = self._without_known(entries)
            if not entries:
                return
            if entries[0].first_index <= core.log.last_index:
                core.truncate(entries[0].first_index)
        core.append(entries)

    def _without_known(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """From the first index on at which the own log has nothing, or another term."""
        log = self._core.log
        for position, entry in enumerate(entries):
            known = self._known_up_to(entry)
            if known < entry.index:
                rest = entries[position:]
                return (rest[0].cut_before(known + 1), *rest[1:]) if entry.span > 1 else rest
            if known == log.last_index:
                return entries[position + 1 :]
        return ()

    def _known_up_to(self, entry: Entry) -> int:
        """The last index of the entry up to which the own log agrees with it."""
        log = self._core.log
        if entry.span == 1:
            return entry.index if log.term_at(entry.index) == entry.term else entry.index - 1
        first_index = entry.first_index
        if log.term_at(first_index) != entry.term:
            return first_index - 1
        return log.last_index_with_term_at_most(entry.index, entry.term)

    def _reject(self, message: AppendRequest) -> None:
        core = self._core
        hint_index = core.log.last_index_with_term_at_most(
            message.previous_index, message.previous_term
        )
        hint_term = core.log.term_at(hint_index)
        core.promise_term(
            AppendRejection(
                core.id,
                message.sender,
                core.term,
                message.previous_index,
                LogIndex(hint_index),
                NO_TERM if hint_term is None else hint_term,
            )
        )

    def _acknowledge(self, message: AppendRequest | InstallSnapshot, index: LogIndex) -> None:
        core = self._core
        core.promise_entries(
            AppendResponse(core.id, message.sender, core.term, index, core.commit_index), index
        )

    def on_commit_notice(self, message: CommitNotice) -> None:
        self._learn_commit(message.commit_index)

    def on_heartbeat(self, message: Heartbeat) -> None:
        core = self._core
        self._learn_commit(message.commit_index)
        core.promise_term(
            HeartbeatResponse(
                core.id, message.sender, core.term, core.commit_index, message.read_round
            )
        )

    def _learn_commit(self, commit_index: LogIndex) -> None:
        """A leader tells only what this replica acknowledged; one whose disk lost entries since
        must not take what else is at these indices for committed."""
        if commit_index <= self._core.log.last_index:
            self._core.commit_to(commit_index)

    def on_snapshot(self, message: InstallSnapshot) -> None:
        core = self._core
        snapshot = message.snapshot
        if self.is_ahead_of_commit(snapshot.index):
            if self.agrees_at(snapshot.index, snapshot.term):
                core.commit_to(snapshot.index)
            else:
                core.restore(snapshot)
        self._acknowledge(message, core.commit_index)

    def is_ahead_of_commit(self, index: int) -> bool:
        """A snapshot of what is committed here already would only take entries away."""
        return index > self._core.commit_index
