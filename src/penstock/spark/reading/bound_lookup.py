"""Bounds of a query turned into offsets by asking the cluster."""

from collections.abc import Collection, Mapping

from penstock.client.wire.cluster import WireCluster
from penstock.model.ids import TopicPartition
from penstock.spark.options.bounds import Bound, Side
from penstock.spark.planning.bounds import Answers, questions, resolve


def look_up(
    cluster: WireCluster,
    bound: Bound,
    partitions: Collection[TopicPartition],
    side: Side,
    *,
    latest: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """`latest` holds the ends of the partitions where they are settled already."""
    wanted = questions(bound, partitions, side)
    earliest = cluster.earliest(wanted.earliest) if wanted.earliest else {}
    at_timestamp = cluster.at_timestamp(wanted.at_timestamp) if wanted.at_timestamp else {}
    if latest is None:
        latest = cluster.latest(wanted.latest) if wanted.latest else {}
    answers = Answers(earliest=earliest, latest=latest, at_timestamp=at_timestamp)
    return resolve(bound, partitions, side, answers)
