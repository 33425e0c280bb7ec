"""What one Spark task reads: a stretch of one partition."""

from pyspark.sql.datasource import InputPartition

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.planning.ranges import OffsetRange


class TopicRange(InputPartition):
    """Travels from the planner to an executor by pickle, so it holds plain values."""

    def __init__(self, topic: str, partition: int, start: int, stop: int) -> None:
        super().__init__((topic, partition, start, stop))
        self.topic = topic
        self.partition = partition
        self.start = start
        self.stop = stop

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), PartitionIndex(self.partition))


def topic_ranges(ranges: list[OffsetRange]) -> list[InputPartition]:
    return [
        TopicRange(str(each.partition.topic), int(each.partition.partition), each.start, each.stop)
        for each in ranges
    ]
