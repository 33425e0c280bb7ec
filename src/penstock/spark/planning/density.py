"""What ranges of offsets really hold, estimated from a few batch headers peeked along them.

Offsets lie about size: compaction leaves gaps, and records differ in bytes from one part of a log
to another. A peek is one small fetch, so a handful of them for each range is cheap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.records.batch import BatchHeader

# What a row costs besides its bytes, expressed in bytes: a task with many small records works
# longer than one with few large ones of the same size.
ROW_COST_BYTES = 64

PROBES = 8

_NOWHERE = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The first batch at or after the offset that was asked for."""

    asked: int
    offset: int
    span: int
    records: int
    size_bytes: int

    @classmethod
    def of(cls, asked: int, header: BatchHeader | None) -> "Sample":
        """What a peek found; None says that nothing is from there to the end of the log."""
        if header is None:
            return cls(asked=asked, offset=_NOWHERE, span=0, records=0, size_bytes=0)
        return cls(
            asked=asked,
            offset=header.base_offset,
            span=header.last_offset_delta + 1,
            records=header.record_count,
            size_bytes=header.size,
        )

    @property
    def stop(self) -> int:
        return self.offset + self.span

    @property
    def rates(self) -> "Rates | None":
        """What an offset holds on average; None for a batch that compaction has emptied."""
        if self.records <= 0 or self.span <= 0:
            return None
        return Rates(
            records=min(1.0, self.records / self.span),
            cost=(self.size_bytes + self.records * ROW_COST_BYTES) / self.span,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one offset holds on average."""

    records: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Offsets from `start` up to `stop`, taken to be alike."""

    start: int
    stop: int
    rates: Rates


NOTHING = Rates(records=0.0, cost=0.0)
# Where nothing is known an offset counts as one record: there can't be more.
UNKNOWN = Rates(records=1.0, cost=float(ROW_COST_BYTES))

Density = tuple[Piece, ...]


def probe_points(start: int, stop: int, count: int = PROBES) -> list[int]:
    """Where to peek into a range: evenly from its start, and nowhere twice."""
    size = stop - start
    return sorted({start + size * step // count for step in range(count)}) if size > 0 else []


def density(start: int, stop: int, samples: Iterable[Sample]) -> Density:
    """The range cut into pieces that are alike, without holes, in order.

    Between two samples the records are taken to lie as densely as at the denser of them, so that
    a limit on records is rather undershot; the cost is their mean. What a sample shows to be
    empty, from the offset asked for up to the batch found, is known to be.
    """
    ordered = sorted((s for s in samples if start <= s.asked < stop), key=lambda s: s.asked)
    if not ordered:
        return (Piece(start=start, stop=stop, rates=UNKNOWN),)
    pieces = [Piece(start=start, stop=ordered[0].asked, rates=ordered[0].rates or UNKNOWN)]
    for number, sample in enumerate(ordered):
        after = ordered[number + 1] if number + 1 < len(ordered) else None
        pieces += _pieces(sample, after, after.asked if after else stop)
    return tuple(piece for piece in pieces if piece.stop > piece.start)


def _pieces(sample: Sample, after: Sample | None, stop: int) -> Sequence[Piece]:
    """From where the sample was asked for up to the next one: gap, batch, and what is behind."""
    batch_start = min(max(sample.asked, sample.offset), stop)
    batch_stop = min(max(batch_start, sample.stop), stop)
    return (
        Piece(start=sample.asked, stop=batch_start, rates=NOTHING),
        Piece(start=batch_start, stop=batch_stop, rates=sample.rates or NOTHING),
        Piece(start=batch_stop, stop=stop, rates=_between(sample, after)),
    )


def _between(sample: Sample, after: Sample | None) -> Rates:
    known = [rates for s in (sample, after) if s is not None and (rates := s.rates) is not None]
    if not known:
        return UNKNOWN
    return Rates(
        records=max(rates.records for rates in known),
        cost=sum(rates.cost for rates in known) / len(known),
    )
