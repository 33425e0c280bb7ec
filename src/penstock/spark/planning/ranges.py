"""Ranges of offsets, and how they are split among tasks when a user asks for it."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.model.ids import TopicPartition
from penstock.spark.planning.density import UNKNOWN, Density, Piece, Rates
from penstock.spark.planning.errors import PlanError

# A plan beyond this would take the driver's memory before the first task has run.
TASKS_MAX = 100_000

Measure = Callable[[Rates], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, but without, `stop`: the work of a task."""

    partition: TopicPartition
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def is_split_wanted(
    ranges: Sequence[OffsetRange],
    *,
    partitions_min: int | None,
    records_per_partition_max: int | None,
) -> bool:
    """Whether `split` would split anything: only then is peeking into the ranges worth it."""
    filled = [offsets for offsets in ranges if offsets.size > 0]
    if filled and partitions_min is not None and partitions_min > len(filled):
        return True
    records_max = records_per_partition_max
    return records_max is not None and any(offsets.size > records_max for offsets in filled)


def split(
    ranges: Iterable[OffsetRange],
    densities: Mapping[TopicPartition, Density],
    *,
    partitions_min: int | None,
    records_per_partition_max: int | None,
) -> list[OffsetRange]:
    """The ranges without empty ones, split as far as the options ask for it.

    Nothing is split unasked, because two tasks on one partition give up its order. First every
    range is cut to about `records_per_partition_max` records; if that leaves fewer ranges than
    `partitions_min`, the larger ones are cut in proportion to what they hold. The number of tasks
    is therefore near the minimum and not always at it.

    A range counts by its density where one is given. Where none is, every offset counts as one
    record: then the limit on records holds exactly, and the split is that of Spark's Kafka source.
    """
    pieces = [offsets for offsets in ranges if offsets.size > 0]
    if records_per_partition_max is not None:
        pieces = _split_by_records(pieces, densities, records_per_partition_max)
    if partitions_min is not None and partitions_min > len(pieces):
        pieces = _split_by_cost(pieces, densities, partitions_min)
    return pieces


def _split_by_records(
    ranges: list[OffsetRange], densities: Mapping[TopicPartition, Density], records_max: int
) -> list[OffsetRange]:
    counts = [
        max(1, math.ceil(_total(_pieces(offsets, densities), _records) / records_max))
        for offsets in ranges
    ]
    _check_tasks(sum(counts), f"maxRecordsPerPartition ({records_max})")
    return [
        part
        for offsets, count in zip(ranges, counts, strict=True)
        for part in _divided(offsets, count, densities, _records)
    ]


def _split_by_cost(
    ranges: list[OffsetRange], densities: Mapping[TopicPartition, Density], partitions_min: int
) -> list[OffsetRange]:
    costs = [_total(_pieces(offsets, densities), _cost) for offsets in ranges]
    small = [_part_count(cost, sum(costs), partitions_min) == 1 for cost in costs]
    # Small ranges stay whole and take a task each; the large ones share the tasks that are left.
    cost_left = sum(cost for cost, is_small in zip(costs, small, strict=True) if not is_small)
    parts_left = max(1, partitions_min - sum(small))
    # Where a partition was cut already, its parts are about alike: one being small keeps all whole.
    whole = {o.partition for o, is_small in zip(ranges, small, strict=True) if is_small}
    counts = [
        1
        if offsets.partition in whole
        else min(offsets.size, _part_count(cost, cost_left, parts_left))
        for offsets, cost in zip(ranges, costs, strict=True)
    ]
    _check_tasks(sum(counts), f"minPartitions ({partitions_min})")
    return [
        part
        for offsets, count in zip(ranges, counts, strict=True)
        for part in _divided(offsets, count, densities, _cost)
    ]


def _part_count(cost: float, total: float, parts: int) -> int:
    # Halves go up, as in Java; Python would round them to even.
    return max(1, math.floor(cost / total * parts + 0.5)) if total > 0 else 1


def _check_tasks(count: int, option: str) -> None:
    if count > TASKS_MAX:
        raise PlanError(
            f"The option {option} would split one batch into {count} tasks, "
            f"but there may be at most {TASKS_MAX}."
        )


def _divided(
    offsets: OffsetRange,
    count: int,
    densities: Mapping[TopicPartition, Density],
    measure: Measure,
) -> list[OffsetRange]:
    if count == 1:
        return [offsets]
    if offsets.partition in densities:
        cuts = _cuts(_pieces(offsets, densities), count, measure)
    else:
        cuts = _even_cuts(offsets, count)
    edges = [offsets.start, *cuts, offsets.stop]
    return [
        OffsetRange(partition=offsets.partition, start=start, stop=stop)
        for start, stop in itertools.pairwise(edges)
        if stop > start
    ]


def _even_cuts(offsets: OffsetRange, count: int) -> list[int]:
    """Equal numbers of offsets, where the later parts take what is left over."""
    cuts = []
    position = offsets.start
    for parts_left in range(count, 1, -1):
        position += (offsets.stop - position) // parts_left
        cuts.append(position)
    return cuts


def _cuts(pieces: Sequence[Piece], count: int, measure: Measure) -> list[int]:
    """Where to cut so that every part holds as much, by walking along the pieces once."""
    step = _total(pieces, measure) / count
    cuts: list[int] = []
    held = 0.0
    for piece in pieces:
        rate = measure(piece.rates)
        weight = rate * (piece.stop - piece.start)
        while weight > 0 and len(cuts) < count - 1 and held + weight >= step * (len(cuts) + 1):
            reached = step * (len(cuts) + 1) - held
            cuts.append(min(piece.stop, piece.start + math.floor(reached / rate + 0.5)))
        held += weight
    return cuts


def _pieces(offsets: OffsetRange, densities: Mapping[TopicPartition, Density]) -> Density:
    """What is known of a range, or of a part of the range that was looked at."""
    known = densities.get(offsets.partition)
    if known is None:
        return (Piece(start=offsets.start, stop=offsets.stop, rates=UNKNOWN),)
    clipped = (
        Piece(
            start=max(piece.start, offsets.start),
            stop=min(piece.stop, offsets.stop),
            rates=piece.rates,
        )
        for piece in known
    )
    return tuple(piece for piece in clipped if piece.stop > piece.start)


def _total(pieces: Sequence[Piece], measure: Measure) -> float:
    return sum(measure(piece.rates) * (piece.stop - piece.start) for piece in pieces)


def _records(rates: Rates) -> float:
    return rates.records


def _cost(rates: Rates) -> float:
    return rates.cost
