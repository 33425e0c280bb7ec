"""Ranges shared among more tasks than there are partitions, by what the ranges really hold."""

from collections.abc import Sequence

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.spark.options.reading import ReadOptions
from penstock.spark.planning.density import Density, Sample, density, probe_points
from penstock.spark.planning.ranges import OffsetRange, is_split_wanted, split

# A range of fewer offsets is read in less time than looking into it would take.
OFFSETS_PROBED_MIN = 1_000


def split_ranges(
    cluster: WireCluster, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    partitions_min = options.partitions_min
    records_max = options.records_per_partition_max
    wanted = is_split_wanted(
        ranges, partitions_min=partitions_min, records_per_partition_max=records_max
    )
    large = [each for each in ranges if wanted and each.size >= OFFSETS_PROBED_MIN]
    return split(
        ranges,
        {each.partition: _density(cluster, each) for each in large},
        partitions_min=partitions_min,
        records_per_partition_max=records_max,
    )


def _density(cluster: WireCluster, wanted: OffsetRange) -> Density:
    samples = []
    for point in probe_points(wanted.start, wanted.stop):
        try:
            header = cluster.peek(wanted.partition, point)
        except UnknownTopic:
            # Whether the query may go on without it is for the reader of the range to say.
            break
        samples.append(Sample.of(point, header))
        # Nothing is from here to the end of the log, so that later points have nothing either.
        if header is None:
            break
    return density(wanted.start, wanted.stop, samples)
