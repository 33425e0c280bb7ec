"""A cluster in memory that answers a planner's questions, with logs that a test moves by hand."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.records.batch import BatchHeader, build_batch, parse_header
from penstock.records.record import Record
from penstock.spark.options.reading import ReadOptions, read_options


@dataclass(slots=True)
class Log:
    start: int = 0
    end: int = 0
    # The timestamp of each offset that has one of its own; all others are 0.
    times: dict[int, int] = field(default_factory=dict)


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def one_record(offset: int) -> BatchHeader:
    return batch_of(offset, records=1, span=1)


def batch_of(offset: int, *, records: int, span: int) -> BatchHeader:
    return parse_header(build_batch([Record(value=b"x" * 1000)], base_offset=offset))._replace(
        last_offset_delta=span - 1, record_count=records
    )


class FakeCluster:
    def __init__(self, **ends: int) -> None:
        """One partition for each topic named, with its end."""
        self.logs = {place(topic): Log(end=end) for topic, end in ends.items()}
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.commit_fails_with: str | None = None
        self.asked: list[str] = []
        self.peeked: list[int] = []
        # What a peek finds for an offset; None where nothing is left of the log.
        self.batch_at: Callable[[int], BatchHeader | None] = one_record
        self.is_closed = False

    @property
    def wire(self) -> WireCluster:
        """Itself, as planners know it."""
        return cast("WireCluster", self)

    def close(self) -> None:
        self.is_closed = True

    def topics(self) -> list[str]:
        return sorted({str(each.topic) for each in self.logs})

    def partitions_known(self, topics: Iterable[str]) -> dict[str, list[int]]:
        self.asked.append("partitions")
        found: dict[str, list[int]] = {}
        for each in sorted(self.logs):
            if each.topic in set(topics):
                found.setdefault(str(each.topic), []).append(int(each.partition))
        return found

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        found = self.partitions_known(topics)
        for topic in topics:
            if topic not in found:
                raise UnknownTopic(f"Topic {topic} does not exist.")
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("earliest")
        return {each: self._log(each).start for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append("latest")
        return {each: self._log(each).end for each in partitions}

    def at_timestamp(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        self.asked.append("at_timestamp")
        return {each: self._first_at(self._log(each), time) for each, time in wanted.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        if self.commit_fails_with is not None:
            raise ClientError(self.commit_fails_with)
        self.commits.append((group, dict(offsets)))

    def peek(self, partition: TopicPartition, offset: int) -> BatchHeader | None:
        self._log(partition)
        self.peeked.append(offset)
        return self.batch_at(offset)

    def _log(self, partition: TopicPartition) -> Log:
        if partition not in self.logs:
            raise UnknownTopic(f"Topic {partition.topic} does not exist.")
        return self.logs[partition]

    def _first_at(self, log: Log, time: int) -> int | None:
        young = [n for n in range(log.start, log.end) if log.times.get(n, 0) >= time]
        return young[0] if young else None


def options(*, streaming: bool = True, **given: Any) -> ReadOptions:
    names = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    texts = {name: str(value) for name, value in given.items()}
    return read_options(names | texts, streaming=streaming)
