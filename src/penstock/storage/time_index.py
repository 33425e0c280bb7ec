"""Beside each entry of the offset index: the latest timestamp of all records before it."""

from array import array
from bisect import bisect_left

from penstock.storage.index_file import IndexContent


class TimeIndex:
    """Never falls, so that the first record at or after a time is found by bisection."""

    __slots__ = ("base_offset", "timestamps")

    def __init__(self, base_offset: int, timestamps: "array[int] | None" = None) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q") if timestamps is None else timestamps

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp_ms: int) -> None:
        self.timestamps.append(timestamp_ms)

    def entry_before(self, timestamp_ms: int) -> int:
        """The last entry before which all records are earlier; -1 if there is none."""
        return bisect_left(self.timestamps, timestamp_ms) - 1

    def first(self, count: int) -> "TimeIndex":
        return TimeIndex(self.base_offset, self.timestamps[:count])

    def content(self, covered: int) -> IndexContent:
        return IndexContent(
            self.base_offset, covered, len(self.timestamps), self.timestamps.tobytes()
        )

    @classmethod
    def from_content(cls, content: IndexContent) -> "TimeIndex":
        timestamps = array("q")
        timestamps.frombytes(content.columns)
        return cls(content.base_offset, timestamps)
