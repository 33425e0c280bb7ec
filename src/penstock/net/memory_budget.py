"""One bound on the memory that all connections hold together, shared so that nobody starves.

A connection holds bytes for the room it has made to receive (beyond a small reserve that everybody
has), for frames that wait for their answer, and for replies that its peer does not read. Bytes
count as they arrive, so a peer that announces a large frame and sends nothing holds nothing.

When the budget is spent, a connection waits before it grows. Waiters are served in order. So that
many half-received frames can't block each other forever, the first waiter may overdraw the
budget by one frame; the next may when that one has given its bytes back. Who stalls with half
a frame is reaped by the door, which gives its bytes back too.
"""

from collections import deque
from collections.abc import Callable


class Claim:
    """What one connection holds of the budget."""

    __slots__ = ("_budget", "held", "on_room", "wanted")

    def __init__(self, budget: "MemoryBudget", on_room: Callable[[], None]) -> None:
        self._budget = budget
        self.held = 0
        # What a waiting claim asked for; it is held already when `on_room` is called.
        self.wanted = 0
        self.on_room = on_room

    def charge(self, size: int) -> None:
        """Counts bytes that are here already, so this is never refused."""
        self.held += size
        self._budget.used += size

    def give_back(self, size: int) -> None:
        """Others may get room by this: their `on_room` is called before this returns."""
        self.held -= size
        assert self.held >= 0
        self._budget.give_back(self, size)

    def grow(self, size: int) -> bool:
        """Takes `size` bytes, or waits in line for them and has `on_room` called."""
        return self._budget.grow(self, size)

    def grow_if_free(self, size: int) -> bool:
        """Takes `size` bytes if nobody needs them more."""
        return self._budget.grow_if_free(self, size)

    def wait_to_read(self) -> None:
        """Has `on_room` called once there is room for anybody."""
        self._budget.wait_to_read(self)

    def close(self) -> None:
        self._budget.forget(self)
        size, self.held = self.held, 0
        self._budget.give_back(self, size)


class MemoryBudget:
    """`bytes_max` for all, `reserve_bytes` more for each so that small frames always flow."""

    def __init__(self, *, bytes_max: int, reserve_bytes: int) -> None:
        """`on_room` of a claim must only take note: it must not call back into the budget."""
        self.bytes_max = bytes_max
        self.reserve_bytes = reserve_bytes
        self.used = 0
        self._growing: deque[Claim] = deque()
        self._reading: dict[Claim, None] = {}
        self._overdrawing: Claim | None = None

    def claim(self, on_room: Callable[[], None]) -> Claim:
        return Claim(self, on_room)

    @property
    def is_spent(self) -> bool:
        return self.used >= self.bytes_max or bool(self._growing)

    def grow_if_free(self, claim: Claim, size: int) -> bool:
        if self._growing or self.used + size > self.bytes_max:
            return False
        claim.charge(size)
        return True

    def grow(self, claim: Claim, size: int) -> bool:
        assert claim.wanted == 0, "this claim waits already"
        if claim is self._overdrawing:
            claim.charge(size)
            return True
        if self.grow_if_free(claim, size):
            return True
        claim.wanted = size
        self._growing.append(claim)
        self._serve(calling_back=claim)
        return claim.wanted == 0

    def wait_to_read(self, claim: Claim) -> None:
        self._reading[claim] = None

    def give_back(self, claim: Claim, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        overdrawing = self._overdrawing
        if overdrawing and (overdrawing.held == 0 or self.used <= self.bytes_max):
            self._overdrawing = None
        if self._growing:
            self._serve()
        if self._reading and self.used < self.bytes_max:
            self._wake_readers()

    def forget(self, claim: Claim) -> None:
        if claim.wanted:
            self._growing.remove(claim)
            claim.wanted = 0
        self._reading.pop(claim, None)

    def _serve(self, calling_back: Claim | None = None) -> None:
        """Grants waiters in order; `calling_back` hears of it from its caller instead."""
        while self._growing:
            claim = self._growing[0]
            if self.used + claim.wanted > self.bytes_max:
                if self._overdrawing is not None:
                    return
                self._overdrawing = claim
            self._growing.popleft()
            claim.charge(claim.wanted)
            claim.wanted = 0
            if claim is not calling_back:
                claim.on_room()

    def _wake_readers(self) -> None:
        waiting, self._reading = self._reading, {}
        for reader in waiting:
            reader.on_room()
