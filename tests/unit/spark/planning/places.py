"""Short names for partitions and ranges in tests."""

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.planning.ranges import OffsetRange


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def span(partition: int, start: int, stop: int) -> OffsetRange:
    return OffsetRange(partition=at(partition), start=start, stop=stop)
