"""The segments of a log in order; replaced as a whole, so that a reader's copy stays consistent."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from penstock.storage.segment import Segment


class SegmentList:
    """Never empty and never changed; the last segment is the active one."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        assert segments
        self._segments = tuple(segments)
        self._bases = [segment.base_offset for segment in segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._segments

    @property
    def all(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def closed(self) -> tuple[Segment, ...]:
        return self._segments[:-1]

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """The segment that would hold `offset`, and those after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def plus(self, segments: Sequence[Segment]) -> "SegmentList":
        return SegmentList((*self._segments, *segments))

    def without(self, gone: Collection[Segment]) -> "SegmentList":
        return SegmentList([segment for segment in self._segments if segment not in gone])

    def replace(self, gone: Collection[Segment], new: Sequence[Segment]) -> "SegmentList":
        kept = [segment for segment in self._segments if segment not in gone]
        return SegmentList(sorted((*kept, *new), key=lambda segment: segment.base_offset))
