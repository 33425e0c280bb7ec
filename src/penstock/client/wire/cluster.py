"""The way into a cluster for code that handles whole record batches."""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.coordinators import Coordinators
from penstock.client.wire.errors import place
from penstock.client.wire.fetch_call import FetchCall, Outcome
from penstock.client.wire.fetching import PartitionFetcher
from penstock.client.wire.groups import GroupOffsets
from penstock.client.wire.links import Links
from penstock.client.wire.offsets import EARLIEST, LATEST, NO_OFFSET, OffsetLookup
from penstock.client.wire.producing import (
    ACKS_ALL,
    BYTES_IN_FLIGHT_MAX,
    REQUEST_BYTES_MAX,
    BatchProducer,
)
from penstock.client.wire.queue_reader import QueueReader
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.topic_settings import message_bytes_max
from penstock.client.wire.topics import TopicView, unknown_topic
from penstock.model.ids import TopicPartition
from penstock.records.batch import BatchHeader, parse_header
from penstock.records.errors import CorruptBatch

# A broker sends one whole batch even to those who ask for less.
PEEK_BYTES_MAX = 1
# A topic may be news to the broker that was asked, so that one is asked again before its absence
# is believed.
NEWS_PAUSE_S = 0.2

Answer = TypeVar("Answer")


class WireCluster:
    """Blocking calls, which follow leaders by themselves; several threads may use one object."""

    def __init__(self, settings: WireSettings) -> None:
        self.settings = settings
        self._links = Links(settings)
        self._map = ClusterMap(settings, self._links)
        self._lookup = OffsetLookup(settings, self._links, self._map)
        self._groups = GroupOffsets(settings, self._links, self._map)
        self._coordinators = Coordinators(settings, self._links, self._map)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections; fetchers and producers are closed by those who made them."""
        self._links.close()

    # Topics

    def topics(self) -> list[str]:
        """The names of all topics but internal ones."""
        return sorted(view.name for view in self._map.all_topics() if not view.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of topics as they are now; raises UnknownTopic."""
        names = list(topics)
        found = self.partitions_known(names)
        if len(found) < len(set(names)):
            time.sleep(NEWS_PAUSE_S)
            found = self.partitions_known(names)
        for name in names:
            if name not in found:
                raise unknown_topic(name)
        return found

    def partitions_known(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The same, without topics that do not exist."""
        return {view.name: sorted(view.leaders) for view in self._map.existing_topics(topics)}

    def partition_count(self, topic: str, *, may_create: bool = False) -> int:
        """From what is known, if it is not too old; `may_create` lets a broker make the topic."""
        return len(self._topic(topic, may_create).leaders)

    def _topic(self, topic: str, may_create: bool) -> TopicView:
        view = self._map.topic(topic, may_create=may_create)
        patience = self._map.patience(f"topic {topic}")
        while not view.leaders:
            patience.pause("it is being created")
            view = self._map.fresh_topic(topic, may_create=may_create)
        return view

    def message_bytes_max(self, topic: str) -> int | None:
        """How large a batch the topic takes; None if the broker does not say."""
        return message_bytes_max(self._map, topic)

    # Offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._lookup.find(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last one that may be read now."""
        return self._lookup.find(dict.fromkeys(partitions, LATEST))

    def at_timestamp(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time in milliseconds; None if no record is so late."""
        found = self._lookup.find(wanted)
        return {
            partition: None if offset == NO_OFFSET else offset
            for partition, offset in found.items()
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Saves positions of a group that has no members; raises GroupActive if it has."""
        self._groups.commit(group, offsets, metadata)

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        return self._groups.committed(group, partitions)

    # Questions about groups

    def ask_all(self, request: object, answer: type[Answer]) -> list[Answer]:
        """What each broker says that can be reached; raises BrokerUnreachable if none can."""
        return self._map.ask_all(request, answer)

    def ask_coordinator(
        self,
        group: str,
        request: object,
        answer: type[Answer],
        complaint_of: Callable[[Answer], str | None],
    ) -> Answer:
        """`complaint_of` says what passes by itself, and raises what does not."""
        patience = self._map.patience(f"group {group}")
        return self._coordinators.ask(group, request, answer, complaint_of, patience=patience)

    # Records

    def peek(self, partition: TopicPartition, offset: int) -> BatchHeader | None:
        """The header of the first batch that ends at or after `offset`; None if there is none."""
        call = FetchCall(self.settings, self._links, self._map, partition)
        patience = self._map.patience(f"a look at {place(partition)}")
        try:
            answer = call.ask(patience, offset, PEEK_BYTES_MAX, 0)
            if answer.outcome is Outcome.OUT_OF_RANGE:
                log_start = self._lookup.find({partition: EARLIEST})[partition]
                if offset >= log_start:
                    return None
                answer = call.ask(patience, log_start, PEEK_BYTES_MAX, 0)
        finally:
            call.close()
        records = answer.data.records
        if not records or answer.outcome is not Outcome.DATA:
            return None
        assert isinstance(records, memoryview)
        try:
            return parse_header(records)
        except CorruptBatch:
            # A message of an old format has no header that says how many records follow.
            return None

    def fetcher(self, partition: TopicPartition, start: int, stop: int) -> PartitionFetcher:
        return PartitionFetcher(self.settings, self._links, self._map, partition, start, stop)

    def queue(self, group: str, topics: Iterable[str]) -> QueueReader:
        """Records of the topics under a share group; it joins when its `with` block begins."""
        return QueueReader(self.settings, self._links, self._map, group, topics)

    def producer(
        self,
        *,
        acks: int = ACKS_ALL,
        idempotent: bool = True,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> BatchProducer:
        return BatchProducer(
            self.settings,
            self._links,
            self._map,
            acks=acks,
            idempotent=idempotent,
            bytes_in_flight_max=bytes_in_flight_max,
            request_bytes_max=request_bytes_max,
        )
