"""The gate that every micro-batch passes before it writes, so that a stop comes between two."""

from collections.abc import Iterator
from contextlib import contextmanager


class StopRequested(Exception):
    """A micro-batch came to the gate after a stop was asked for; nothing of it was written.

    Spark ends the query with this. It has planned the batch by then, and a restart runs it with
    the very same rows.
    """


class StopGate:
    """Shared by all flows of a run; each flow is known to it by its name.

    There is no lock, because a signal handler may ask for the stop while its own thread is inside
    here. Instead a batch first says that it has entered and then looks at the request, and who
    stops first makes the request and then looks for batches: one of the two sees the other.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._under_way: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def request(self) -> None:
        """From now on no batch passes; those that have passed go on to their end."""
        self._is_requested = True

    @property
    def is_requested(self) -> bool:
        return self._is_requested

    @contextmanager
    def batch(self, flow: str, batch: int) -> Iterator[None]:
        """The time in which a batch writes; raises StopRequested instead of beginning it."""
        self._under_way[flow] = batch
        try:
            if self._is_requested:
                raise StopRequested(f"The flow {flow} was asked to stop before batch {batch}.")
            yield
            self._left[flow] = batch
        finally:
            del self._under_way[flow]

    def under_way(self, flow: str) -> int | None:
        """The batch that is writing now."""
        return self._under_way.get(flow)

    def last_left(self, flow: str) -> int | None:
        """The last batch that has written all it had; Spark may not have noted it yet."""
        return self._left.get(flow)
