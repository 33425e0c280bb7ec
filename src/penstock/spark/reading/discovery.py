"""Which partitions a query reads at this moment."""

from collections.abc import Collection, Iterable, Mapping

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.options.selection import Assigned, Pattern, Selection, Topics


def selected_partitions(cluster: WireCluster, selection: Selection) -> list[TopicPartition]:
    """All of them; a topic or partition that was named and does not exist is an error."""
    match selection:
        case Topics(names):
            return _flat(cluster.partitions(names))
        case Pattern():
            return _flat(cluster.partitions_known(_matching(cluster, selection)))
        case Assigned(partitions):
            _check_assigned(partitions, cluster.partitions(partitions))
            return _flat(partitions)


def remaining_partitions(
    cluster: WireCluster, selection: Selection, seen: Collection[str]
) -> list[TopicPartition]:
    """The same for a running query, of which topics that it has seen before may be gone."""
    match selection:
        case Topics(names):
            known = cluster.partitions_known(names)
            for name in names:
                # A topic that was never there is a misspelt one, not a deleted one.
                if name not in known and name not in seen:
                    known |= cluster.partitions([name])
            return _flat(known)
        case Pattern():
            return _flat(cluster.partitions_known(_matching(cluster, selection)))
        case Assigned(partitions):
            known = cluster.partitions_known(partitions)
            return [p for p in _flat(partitions) if p.partition in known.get(str(p.topic), ())]


def topics_named(selection: Selection) -> Collection[str]:
    match selection:
        case Topics(names):
            return names
        case Assigned(partitions):
            return partitions.keys()
        case Pattern():
            return ()


def _matching(cluster: WireCluster, pattern: Pattern) -> list[str]:
    return [name for name in cluster.topics() if pattern.matches(name)]


def _check_assigned(
    wanted: Mapping[str, Iterable[int]], known: Mapping[str, Iterable[int]]
) -> None:
    for topic, partitions in wanted.items():
        missing = sorted(set(partitions) - set(known[topic]))
        if missing:
            raise UnknownTopic(f"Topic {topic} has no partition {missing[0]}.")


def _flat(partitions: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    return [
        TopicPartition(TopicName(topic), PartitionIndex(index))
        for topic in sorted(partitions)
        for index in sorted(partitions[topic])
    ]
