"""A sparse map from offsets to positions in a segment, small enough to keep in memory."""

from array import array
from bisect import bisect_left, bisect_right

from penstock.storage.index_file import IndexContent

# Offsets are kept relative to the segment's base offset, so that both columns take 4 bytes.
RELATIVE_OFFSET_MAX = 2**31 - 1


class OffsetIndex:
    """Entry i: the batch at `positions[i]` begins with offset `base_offset + offsets[i]`.

    One thread appends while others look up: an entry's position is there before its offset is.
    """

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(
        self,
        base_offset: int,
        offsets: "array[int] | None" = None,
        positions: "array[int] | None" = None,
    ) -> None:
        self.base_offset = base_offset
        self.offsets = array("I") if offsets is None else offsets
        self.positions = array("I") if positions is None else positions

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def memory_bytes(self) -> int:
        return len(self.offsets) * 8

    def append(self, offset: int, position: int) -> None:
        self.positions.append(position)
        self.offsets.append(offset - self.base_offset)

    def floor(self, offset: int) -> tuple[int, int]:
        """The last entry at or before `offset`: its offset and position; else -1 and the begin."""
        entry = bisect_right(self.offsets, offset - self.base_offset) - 1
        if entry < 0:
            # Compaction may have removed the base offset itself, so nothing is promised for it.
            return -1, 0
        return self.base_offset + self.offsets[entry], self.positions[entry]

    def boundary_at_or_before(self, position: int) -> int:
        """The last known position, not after `position`, where a batch begins."""
        entry = bisect_right(self.positions, position) - 1
        return self.positions[entry] if entry >= 0 else 0

    def place_before(self, position: int) -> tuple[int, int] | None:
        """Position and offset of the last batch that is known, not after `position`."""
        entry = bisect_right(self.positions, position, 0, len(self.offsets)) - 1
        return self._place(entry) if entry >= 0 else None

    def place_from(self, position: int) -> tuple[int, int] | None:
        """Position and offset of the first batch that is known from `position` on."""
        count = len(self.offsets)
        entry = bisect_left(self.positions, position, 0, count)
        return self._place(entry) if entry < count else None

    def _place(self, entry: int) -> tuple[int, int]:
        return self.positions[entry], self.base_offset + self.offsets[entry]

    def before(self, position: int) -> "OffsetIndex":
        """This index without what is at or after `position`, as one of its own for readers."""
        count = bisect_right(self.positions, position - 1) if position > 0 else 0
        return OffsetIndex(self.base_offset, self.offsets[:count], self.positions[:count])

    def content(self, covered: int) -> IndexContent:
        columns = self.offsets.tobytes() + self.positions[: len(self.offsets)].tobytes()
        return IndexContent(self.base_offset, covered, len(self.offsets), columns)

    @classmethod
    def from_content(cls, content: IndexContent) -> "OffsetIndex":
        offsets, positions = array("I"), array("I")
        middle = content.entries * 4
        offsets.frombytes(content.columns[:middle])
        positions.frombytes(content.columns[middle:])
        assert len(offsets) == len(positions)
        return cls(content.base_offset, offsets, positions)
