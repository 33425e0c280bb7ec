"""What topics hold: how many records and bytes, asked of all brokers of a cluster."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.model.endpoint import Endpoint
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataResponse

_EARLIEST, _LATEST = -2, -1
_CONSUMER = -1

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHoldings:
    """None where a broker that would know does not answer."""

    name: str
    partitions: int
    replicas: int
    internal: bool
    # Offsets from the first that is kept to the last; compaction leaves fewer records.
    records: int | None
    # Of one copy of each partition, the largest.
    bytes: int | None


class Inventory:
    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._starts: Offsets = {}
        self._ends: Offsets = {}
        self._sizes: Offsets = {}

    def topics(self) -> list[TopicHoldings]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = self._connection.ask(request, MetadataResponse)
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic in metadata.topics:
            for one in topic.partitions:
                led[one.leader_id].append(_place(topic.name or "", one.partition_index))
        for broker in metadata.brokers:
            self._ask(Endpoint(broker.host, broker.port), led[broker.node_id])
        found = [
            self._holdings(
                topic.name or "",
                [one.partition_index for one in topic.partitions],
                max((len(one.replica_nodes) for one in topic.partitions), default=0),
                topic.is_internal,
            )
            for topic in metadata.topics
        ]
        return sorted(found, key=lambda one: one.name)

    def _ask(self, broker: Endpoint, led: list[TopicPartition]) -> None:
        timeout_s = self._connection.timeout_s
        with KafkaConnection(str(broker), timeout_s=timeout_s) as connection:
            try:
                self._starts |= _offsets(connection, led, _EARLIEST)
                self._ends |= _offsets(connection, led, _LATEST)
                for place, size in _sizes(connection):
                    self._sizes[place] = max(size, self._sizes.get(place, 0))
            except ClientError:
                # It is down, or hangs: what the others hold is known all the same.
                return

    def _holdings(
        self, name: str, indexes: list[int], replicas: int, internal: bool
    ) -> TopicHoldings:
        places = [_place(name, index) for index in indexes]
        starts, ends = _total(self._starts, places), _total(self._ends, places)
        return TopicHoldings(
            name=name,
            partitions=len(places),
            replicas=replicas,
            internal=internal,
            records=None if starts is None or ends is None else ends - starts,
            bytes=_total(self._sizes, places),
        )


def _offsets(connection: KafkaConnection, led: Iterable[TopicPartition], at: int) -> Offsets:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for place in led:
        one = ListOffsetsPartition(partition_index=place.partition, timestamp=at)
        topics[place.topic].append(one)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        timeout_ms=int(connection.timeout_s * 1000),
        topics=[ListOffsetsTopic(name=name, partitions=ones) for name, ones in topics.items()],
    )
    found = connection.ask(request, ListOffsetsResponse)
    return {
        _place(topic.name, one.partition_index): one.offset
        for topic in found.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE
    }


def _sizes(connection: KafkaConnection) -> Iterable[tuple[TopicPartition, int]]:
    found = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    for directory in found.results:
        for topic in directory.topics:
            for one in topic.partitions:
                yield _place(topic.name, one.partition_index), one.partition_size


def _total(known: Mapping[TopicPartition, int], places: list[TopicPartition]) -> int | None:
    """None unless all are known."""
    return sum(known[place] for place in places) if known.keys() >= set(places) else None


def _place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
