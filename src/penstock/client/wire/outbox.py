"""What callers hand to the sending thread, how much of it is held, and how it went."""

import threading

from penstock.client.wire.partition_queue import Outgoing


class Outbox:
    """Shared by all threads of a producer; callers wait here while too much is held."""

    def __init__(self, bytes_max: int) -> None:
        self.acknowledged = 0
        self._bytes_max = bytes_max
        self._bytes_held = 0
        self._batches_held = 0
        self._new: list[Outgoing] = []
        self._failure: BaseException | None = None
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, batch: Outgoing) -> bool:
        """Whether the sending thread must be woken; raises what went wrong before."""
        with self._changed:
            while self._is_full(batch.size) and self._failure is None and not self._is_closed:
                self._changed.wait()
            self._check()
            assert not self._is_closed, "the producer is closed"
            self._bytes_held += batch.size
            self._batches_held += 1
            self._new.append(batch)
            return len(self._new) == 1

    def _is_full(self, size: int) -> bool:
        # One batch may be larger than all that may be held, or it would never be sent.
        return self._bytes_held > 0 and self._bytes_held + size > self._bytes_max

    def wait_until_empty(self) -> None:
        with self._changed:
            while self._batches_held and self._failure is None and not self._is_closed:
                self._changed.wait()
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # From the sending thread

    def take(self) -> list[Outgoing]:
        with self._changed:
            new, self._new = self._new, []
            return new

    def settle(self, batches: list[Outgoing]) -> None:
        """These are acknowledged."""
        with self._changed:
            self.acknowledged += sum(batch.count for batch in batches)
            self._bytes_held -= sum(batch.size for batch in batches)
            self._batches_held -= len(batches)
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._new.clear()
            self._changed.notify_all()
