"""Entries that a follower lacks and only the disk has, read for it in worker threads.

A node that comes back may lack a lot, and the leader's disk may be slow: what has to be waited for
must not hold up the event loop, and with it everybody else. So the core learns that the entries
are not at hand, and sends them in the turn in which they come. Nothing is kept for longer: a node
may be behind in a thousand groups.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from penstock.model.ids import LogIndex, ReplicaId
from penstock.raft.core import HasRoom
from penstock.raft.entries import Entry
from penstock.replication.entry_codec import entry_of
from penstock.storage.log import EntriesGone, Log

logger = logging.getLogger(__name__)

# Of all groups together: writes use the same threads.
READS_MAX = 2

Outcome = Sequence[Entry] | Exception


class _Asked(NamedTuple):
    group: "ColdEntries"
    # Of the group's, so that what is void is told from what is not.
    stretch: int
    low: LogIndex
    follower: ReplicaId


class FollowerReads:
    """The reads of all groups of a node, in the order in which they were asked for."""

    __slots__ = ("_executor", "_has_room", "_running", "_waiting")

    def __init__(self, executor: Executor, has_room: HasRoom) -> None:
        self._executor = executor
        self._has_room = has_room
        self._waiting: deque[_Asked] = deque()
        self._running = 0

    def ask(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < READS_MAX:
            asked = self._waiting.popleft()
            # What is read while it can't be sent would have to be read again.
            if not asked.group.wants(asked) or not self._has_room(asked.follower):
                asked.group.gave_up(asked)
                continue
            self._running += 1
            running = loop.run_in_executor(self._executor, asked.group.read, asked.low)
            running.add_done_callback(partial(self._ended, asked))

    def _ended(self, asked: _Asked, done: asyncio.Future[Outcome]) -> None:
        self._running -= 1
        asked.group.gave_up(asked)
        if not done.cancelled() and asked.group.wants(asked):
            asked.group.came(asked.low, done.result())
        self._start()


class ColdEntries:
    """One group's part, of use while its replica leads."""

    __slots__ = (
        "_asking",
        "_bytes_max",
        "_found",
        "_has_failed",
        "_log",
        "_reads",
        "_stretch",
        "on_arrival",
        "on_failure",
    )

    def __init__(self, log: Log, reads: FollowerReads, bytes_max: int) -> None:
        self._log = log
        self._reads = reads
        self._bytes_max = bytes_max
        # By their first index, in this turn; none at all where the log begins behind it.
        self._found: dict[int, Sequence[Entry]] = {}
        self._asking: set[ReplicaId] = set()
        # How often the log has become another one: what was asked for before that is void.
        self._stretch = 0
        self._has_failed = False
        self.on_arrival: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _: None

    def is_at_hand(self, low: LogIndex, follower: ReplicaId) -> bool:
        """Asks for what is not; `on_arrival` follows when it is, or there is no room for it any
        more and an answer of the follower is reason to ask again."""
        if low in self._found:
            return True
        if follower not in self._asking:
            self._asking.add(follower)
            self._reads.ask(_Asked(self, self._stretch, low, follower))
        return False

    def get(self, low: LogIndex, high: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """What came, before `high`: at least one, then as many as fit; None where nothing did."""
        found = self._found.get(low)
        if not found or (found[-1].index < high and bytes_max >= self._bytes_max):
            return found
        chosen: list[Entry] = []
        for entry in found:
            bytes_max -= entry.size_bytes
            if entry.index >= high or (chosen and bytes_max < 0):
                break
            chosen.append(entry)
        return chosen or None

    def clear(self) -> None:
        self._stretch += 1
        self._found.clear()
        self._asking.clear()

    def wants(self, asked: _Asked) -> bool:
        return asked.stretch == self._stretch

    def gave_up(self, asked: _Asked) -> None:
        if self.wants(asked):
            self._asking.discard(asked.follower)

    def read(self, low: LogIndex) -> Outcome:
        """In a worker thread. While the log becomes another one, anything may be met."""
        try:
            high = LogIndex(self._log.last_index + 1)
            return [entry_of(stored) for stored in self._log.entries(low, high, self._bytes_max)]
        except EntriesGone:
            return ()
        except Exception as error:
            return error

    def came(self, low: LogIndex, outcome: Outcome) -> None:
        if isinstance(outcome, OSError):
            self._note_failure(outcome)
            return
        if isinstance(outcome, Exception):
            self.on_failure(outcome)
            return
        self._has_failed = False
        self._found[low] = outcome
        self.on_arrival()
        # Behind what sends them, at the end of this turn.
        asyncio.get_running_loop().call_soon(self._found.pop, low, None)

    def _note_failure(self, error: OSError) -> None:
        """It is read again for as long as the follower answers, so it is told once."""
        if not self._has_failed:
            logger.warning("%s can't be read for a follower: %s", self._log.directory, error)
        self._has_failed = True
