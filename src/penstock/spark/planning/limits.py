"""Where a micro-batch ends under limits, as Spark's Kafka source has them.

Limits count offsets and not records, since records are only known once they are read.
"""

from collections.abc import Mapping

from penstock.model.ids import TopicPartition

Offsets = Mapping[TopicPartition, int]


def limited_end(
    start: Offsets, latest: Offsets, new_starts: Offsets, *, offsets_max: int
) -> dict[TopicPartition, int]:
    """The end of a batch of about `offsets_max`, shared among partitions by what each has waiting.

    `new_starts` holds the earliest offsets of partitions that `start` does not know yet. Shares
    are rounded down, but no partition with anything waiting gets nothing, or it would starve; so
    with many small partitions a batch may be larger than the limit by one offset for each.
    """
    sizes = _waiting(start, latest, new_starts)
    total = sum(sizes.values())
    begins = {**new_starts, **start}
    end = dict(latest)
    for partition, size in sizes.items():
        share = max(1, offsets_max * size // total)
        end[partition] = min(latest[partition], begins[partition] + share)
    return end


def is_held_back(
    start: Offsets,
    latest: Offsets,
    new_starts: Offsets,
    *,
    offsets_min: int,
    delay_max_s: float,
    since_last_s: float | None,
) -> bool:
    """Whether a batch waits for more: too little has come, and it has not waited long enough.

    `since_last_s` is the time since the last batch that was let go, None before the first one,
    which never waits.
    """
    if since_last_s is None or since_last_s >= delay_max_s:
        return False
    return sum(_waiting(start, latest, new_starts).values()) < offsets_min


def _waiting(start: Offsets, latest: Offsets, new_starts: Offsets) -> dict[TopicPartition, int]:
    """How many offsets each partition has to read; a partition without a known start has none."""
    waiting = {}
    for partition, stop in latest.items():
        begin = start.get(partition, new_starts.get(partition))
        if begin is not None and stop > begin:
            waiting[partition] = stop - begin
    return waiting
