"""Which records of an archive are brought back: a range of offsets, of times, or both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.archives.refusals import ArchiveRefused

# The bound of every partition that has none of its own.
ALL = None

Bounds = Mapping[int | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Lower bounds are included, upper ones are not; offsets by partition, or for all (None)."""

    from_offset: Bounds = field(default_factory=dict)
    until_offset: Bounds = field(default_factory=dict)
    from_ms: int | None = None
    until_ms: int | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    """By `from_ms` and `until_ms`: how long ago, where a time was said like that."""

    @property
    def has_times(self) -> bool:
        return self.from_ms is not None or self.until_ms is not None

    def cut(self, span: Span) -> Span:
        """The part of a partition's offsets that is wanted; empty rather than reversed."""
        start = max(span.start, _bound(self.from_offset, span.partition, span.start))
        stop = min(span.stop, _bound(self.until_offset, span.partition, span.stop))
        return Span(partition=span.partition, start=start, stop=max(start, stop))

    def check(self, partitions: int) -> None:
        """Refuse bounds of partitions that are not there."""
        for partition in (*self.from_offset, *self.until_offset):
            if partition is not None and partition >= partitions:
                raise ArchiveRefused(
                    f"The archive has {partitions} partitions, so there is no partition"
                    f" {partition}."
                )

    def is_said_by(self, words: Mapping[str, str], selection: Mapping[str, Any]) -> bool:
        """Whether the same was asked for: how long ago a time is, moves on with the clock."""
        mine = {**self.to_json(), **self.words}
        return self.words == words and mine == {**selection, **words}

    def to_json(self) -> dict[str, Any]:
        """The same for the same selection, so that a replay is known again."""
        return {
            "from_offset": _bounds_json(self.from_offset),
            "until_offset": _bounds_json(self.until_offset),
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
        }


def _bound(bounds: Bounds, partition: int, default: int) -> int:
    return bounds.get(partition, bounds.get(ALL, default))


def _bounds_json(bounds: Bounds) -> dict[str, int]:
    return {"all" if one is None else str(one): offset for one, offset in bounds.items()}
