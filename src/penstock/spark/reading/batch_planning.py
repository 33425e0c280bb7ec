"""What a batch query reads: from its start to its end, as the options and its conditions say."""

from collections.abc import Mapping, Sequence

from penstock.client.wire.cluster import WireCluster
from penstock.model.ids import TopicPartition
from penstock.spark.options.bounds import Side
from penstock.spark.options.reading import ReadOptions
from penstock.spark.planning.bounds import batch_ranges
from penstock.spark.planning.ranges import OffsetRange
from penstock.spark.reading.bound_lookup import look_up
from penstock.spark.reading.data_loss import report_loss
from penstock.spark.reading.discovery import selected_partitions
from penstock.spark.reading.filters import Narrowing
from penstock.spark.reading.splitting import split_ranges


def plan_batch(
    cluster: WireCluster, options: ReadOptions, narrowing: Narrowing
) -> list[OffsetRange]:
    partitions = selected_partitions(cluster, options.selection)
    if not partitions:
        return []
    starts = look_up(cluster, options.starting, partitions, Side.STARTING)
    # The ends come last, so that records which arrive meanwhile are not skipped but not there yet.
    latest = cluster.latest(partitions)
    ends = look_up(cluster, options.ending, partitions, Side.ENDING, latest=latest)
    reachable = _reachable(ends, latest, fail=options.fail_on_data_loss)
    ranges = batch_ranges(options.starting, options.ending, starts, reachable)
    return split_ranges(cluster, options, _narrowed(cluster, ranges, narrowing))


def _reachable(
    ends: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], *, fail: bool
) -> dict[TopicPartition, int]:
    """A batch does not wait for what has yet to be written."""
    for partition, end in ends.items():
        if end > latest[partition]:
            report_loss(
                f"The query must end at offset {end} of partition {partition.partition} of topic"
                f" {partition.topic}, which ends at offset {latest[partition]}",
                fail=fail,
            )
    return {partition: min(end, latest[partition]) for partition, end in ends.items()}


def _narrowed(
    cluster: WireCluster, ranges: Sequence[OffsetRange], narrowing: Narrowing
) -> list[OffsetRange]:
    cut = [
        OffsetRange(partition=each.partition, start=start, stop=stop)
        for each in ranges
        if narrowing.keeps(each.partition)
        for start, stop in [narrowing.cut(each.start, each.stop)]
        if start < stop
    ]
    if narrowing.timestamp_ms_min is None or not cut:
        return cut
    return _from_timestamp(cluster, cut, narrowing.timestamp_ms_min)


def _from_timestamp(
    cluster: WireCluster, ranges: Sequence[OffsetRange], timestamp_ms: int
) -> list[OffsetRange]:
    """Everything before the first record that is young enough is older, so it need not be read."""
    firsts = cluster.at_timestamp({each.partition: timestamp_ms for each in ranges})
    return [
        OffsetRange(partition=each.partition, start=max(each.start, first), stop=each.stop)
        for each in ranges
        if (first := firsts[each.partition]) is not None and first < each.stop
    ]
