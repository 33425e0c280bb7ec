"""Where a connection's frames arrive, and what that and its unfinished work cost of the memory.

A connection holds memory for the capacity of its receive buffer beyond the base that everybody
has, for calls that wait for their answer, and for replies that its peer has not read.
"""

from collections.abc import Callable

from penstock.net.memory_budget import MemoryBudget
from penstock.net.receive_buffer import BASE_CAPACITY, BUSY_CAPACITY, ReceiveBuffer, SharedMemory


class Intake:
    """A receive buffer that asks the budget before it grows."""

    __slots__ = ("_budget", "_call_bytes", "_claim", "_growth", "_reply_bytes", "buffer")

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        memory: SharedMemory,
        budget: MemoryBudget,
        on_room: Callable[[], None],
    ) -> None:
        self.buffer = ReceiveBuffer(frame_bytes_max, memory)
        self._budget = budget
        self._claim = budget.claim(on_room)
        self._call_bytes = 0
        self._reply_bytes = 0
        # The capacity that we wait for, if any.
        self._growth = 0

    def has_room(self) -> bool:
        """Makes room to receive. False: pause until `on_room`, or until something is released."""
        budget = self._budget
        owed = self._call_bytes + self._reply_bytes
        if owed > budget.reserve_bytes and budget.used >= budget.bytes_max:
            # Its own calls and replies must end first: that will happen without its reading.
            self._claim.wait_to_read()
            return False
        wanted = self.buffer.make_room()
        return wanted <= self.buffer.capacity or self._grow(wanted)

    def _grow(self, capacity: int) -> bool:
        if self._claim.grow(capacity - self.buffer.capacity):
            self.buffer.grow_to(capacity)
            return True
        self._growth = capacity
        return False

    def use_room(self) -> bool:
        """Whether reading may be tried again; called after `on_room` and after a release."""
        if self._claim.wanted:
            return False
        if self._growth:
            self.buffer.grow_to(self._growth)
            self._growth = 0
        return True

    def adapt(self, was_full: bool) -> None:
        """Once all frames are served: holds less when memory is short, more when busy."""
        capacity = self.buffer.capacity
        if self._budget.is_spent:
            self.trim(BASE_CAPACITY)
        elif was_full and capacity < BUSY_CAPACITY and self._claim.grow_if_free(capacity):
            self.buffer.grow_to(capacity * 2)

    def trim(self, capacity: int) -> None:
        """Gives back what a large frame or a busy time needed."""
        buffer = self.buffer
        if buffer.is_empty and buffer.capacity > capacity:
            extra = max(buffer.capacity - BASE_CAPACITY, 0)
            buffer.shrink_to(capacity)
            self._claim.give_back(extra)

    def hold_call(self, size: int) -> None:
        self._call_bytes += size
        self._claim.charge(size)

    def release_calls(self, size: int) -> None:
        self._call_bytes -= size
        self._claim.give_back(size)

    def count_replies(self, size: int) -> None:
        """Says how many bytes of replies wait in memory by now."""
        change = size - self._reply_bytes
        self._reply_bytes = size
        if change > 0:
            self._claim.charge(change)
        elif change < 0:
            self._claim.give_back(-change)

    @property
    def counts_replies(self) -> bool:
        return self._reply_bytes > 0

    @property
    def is_overdrawn_by_replies(self) -> bool:
        """The budget is exceeded, and replies that this peer does not read are part of it."""
        budget = self._budget
        return self._reply_bytes > budget.reserve_bytes and budget.used > budget.bytes_max

    def close(self) -> None:
        self.buffer.clear()
        self._claim.close()
