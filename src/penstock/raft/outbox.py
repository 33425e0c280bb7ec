"""Messages on their way out, each held back until what it promises is durable."""

from operator import attrgetter

from penstock.model.ids import Term
from penstock.raft.entries import HardState
from penstock.raft.messages import AppendResponse, Message


class Outbox:
    """Knows which write makes which promise true.

    Writes are numbered from 1 and become durable in that order. A promise about state that no
    write carries yet belongs to the next one.
    """

    __slots__ = (
        "_entries_write",
        "_hard_state_write",
        "_waiting",
        "hard_state",
        "issued",
        "persisted",
        "sendable",
    )

    def __init__(self, hard_state: HardState) -> None:
        self.sendable: list[Message] = []
        self._waiting: list[tuple[int, Message]] = []
        self.issued = 0
        self.persisted = 0
        # The hard state that was last handed to the host, and the write that carried it.
        self.hard_state = hard_state
        self._hard_state_write = 0
        self._entries_write = 0

    def send(self, message: Message) -> None:
        """For messages that promise nothing."""
        self.sendable.append(message)

    def send_when_term_is_durable(self, message: Message, hard_state: HardState) -> None:
        self._hold(self._write_of(hard_state), message)

    def send_when_entries_are_durable(
        self, message: Message, hard_state: HardState, unwritten: bool
    ) -> None:
        # The next write carries everything that is not written, so nothing waits beyond it.
        if unwritten or hard_state is not self.hard_state:
            self._hold(self.issued + 1, message)
        else:
            self._hold(max(self._entries_write, self._hard_state_write), message)

    def _write_of(self, hard_state: HardState) -> int:
        return self.issued + 1 if self.lacks(hard_state) else self._hard_state_write

    def _hold(self, write: int, message: Message) -> None:
        if write <= self.persisted:
            self.sendable.append(message)
        elif self._waiting and self._waiting[-1][0] == write:
            self._add(self._waiting, write, message)
        else:
            self._waiting.append((write, message))

    @staticmethod
    def _add(held: list[tuple[int, Message]], write: int, message: Message) -> None:
        """Adds to what is held. Acknowledgements say "up to here", so of two in a row the one that
        reaches further says it all: a slow disk does not pile them up."""
        if held and isinstance(message, AppendResponse):
            before = held[-1][1]
            if isinstance(before, AppendResponse) and before.term == message.term:
                held[-1] = (write, max(before, message, key=attrgetter("match_index")))
                return
        held.append((write, message))

    def lacks(self, hard_state: HardState) -> bool:
        """Whether the host was not given this hard state yet."""
        return hard_state is not self.hard_state

    def issue(self, hard_state: HardState | None, log_changed: bool) -> int:
        """A write leaves for the disk; gives its number."""
        self.issued += 1
        if hard_state is not None:
            self.hard_state = hard_state
            self._hard_state_write = self.issued
        if log_changed:
            self._entries_write = self.issued
        return self.issued

    def release(self, number: int, term: Term) -> list[Message]:
        """Writes up to `number` are durable: what waited for them, except what is out of date."""
        assert self.persisted < number <= self.issued
        self.persisted = number
        if not self._waiting:
            return []
        released: list[tuple[int, Message]] = []
        waiting: list[tuple[int, Message]] = []
        for held in self._waiting:
            if held[0] > number:
                waiting.append(held)
            elif held[1].term >= term:
                self._add(released, *held)
        self._waiting = waiting
        return [message for _, message in released]

    def take(self) -> list[Message]:
        taken, self.sendable = self.sendable, []
        return taken
