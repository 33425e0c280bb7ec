"""Rows that come in batches and are taken in pieces of another size."""

from collections.abc import Iterator

import pyarrow as pa

_COMPARED = ("key", "value", "headers", "timestamp")


class RowQueue:
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._head: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.RecordBatch | None:
        """The next rows, at least one and at most this many; None at the end."""
        head = self._head if self._head is not None else next(self._batches, None)
        if head is None:
            return None
        self._head = head.slice(count) if head.num_rows > count else None
        return head.slice(0, count)

    def skip(self, count: int) -> None:
        """As many as there are, if there are fewer."""
        while count > 0:
            taken = self.take(count)
            if taken is None:
                return
            count -= taken.num_rows

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._head is not None:
            yield self._head
            self._head = None
        yield from self._batches


def same_records(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """All that a record is but its offset."""
    return all(one.column(name).equals(other.column(name)) for name in _COMPARED)
