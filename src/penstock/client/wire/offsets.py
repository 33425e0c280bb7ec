"""Offsets at the ends of partitions and at times, asked of their leaders all at once."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import groupby

from penstock.client.connection import reason_of_failure
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import name_of, place, refused
from penstock.client.wire.link import Expected, Link
from penstock.client.wire.links import Links
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
LATEST = -1
NO_OFFSET = -1
_CONSUMER = -1

Epochs = dict[TopicPartition, int]


class OffsetLookup:
    def __init__(self, settings: WireSettings, links: Links, cluster_map: ClusterMap) -> None:
        self._settings = settings
        self._links = links
        self._map = cluster_map

    def find(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition at a time or end; NO_OFFSET if there is none."""
        found: dict[TopicPartition, int] = {}
        left = dict(wanted)
        patience = self._map.patience("looking up offsets")
        while left:
            attempt = _Round(self._settings, self._links, self._map, left)
            attempt.run()
            if attempt.answered:
                patience.progress()
            found.update(attempt.answered)
            left = {one: at for one, at in left.items() if one not in attempt.answered}
            if left:
                patience.pause(attempt.reason)
        return {partition: found[partition] for partition in wanted}


class _Round:
    """One question to each leader; they all work on the answers at the same time."""

    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        wanted: Mapping[TopicPartition, int],
    ) -> None:
        self.answered: dict[TopicPartition, int] = {}
        # Why something is not answered.
        self.reason: str | ClientError = "the answers leave something out"
        self._settings = settings
        self._links = links
        self._map = cluster_map
        self._wanted = wanted

    def run(self) -> None:
        with ExitStack() as ends:
            asked = []
            for endpoint, epochs in self._by_leader().items():
                try:
                    link = self._links.borrow(endpoint, self._settings.request_timeout_s)
                    ends.callback(self._links.give_back, endpoint, link)
                    asked.append((link, link.send(self._request(epochs)), epochs))
                except OSError as error:
                    self._lost(epochs, error)
            for link, expected, epochs in asked:
                self._hear(link, expected, epochs)

    def _by_leader(self) -> dict[Endpoint, Epochs]:
        by_leader: dict[Endpoint, Epochs] = {}
        for partition in sorted(self._wanted):
            try:
                endpoint, epoch, _ = self._map.locate(partition)
            except BrokerUnreachable as error:
                # Nobody would answer the next question either.
                self.reason = error
                return {}
            if endpoint is None:
                self.reason = f"{place(partition)} has no leader"
                self._map.forget_leader(partition)
            else:
                by_leader.setdefault(endpoint, {})[partition] = epoch
        return by_leader

    def _hear(self, link: Link, expected: Expected, epochs: Epochs) -> None:
        try:
            answer = link.receive(expected, ListOffsetsResponse)
        except OSError as error:
            self._lost(epochs, error)
            return
        for topic in answer.topics:
            for one in topic.partitions:
                index = PartitionIndex(one.partition_index)
                partition = TopicPartition(TopicName(topic.name), index)
                self._take(partition, one.error_code, one.offset)

    def _take(self, partition: TopicPartition, code: int, offset: int) -> None:
        if code == ErrorCode.NONE:
            self.answered[partition] = offset
            return
        if code not in RETRIABLE:
            raise refused(f"the offsets of {place(partition)}", code)
        self._map.forget_leader(partition)
        self.reason = f"{place(partition)}: {name_of(code)}"

    def _lost(self, partitions: Iterable[TopicPartition], error: OSError) -> None:
        for partition in partitions:
            self._map.forget_leader(partition)
        self.reason = reason_of_failure(error, self._settings.request_timeout_s)

    def _request(self, epochs: Epochs) -> ListOffsetsRequest:
        by_topic = groupby(epochs.items(), key=lambda one: one[0].topic)
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._settings.isolation_read_committed),
            timeout_ms=int(self._settings.request_timeout_s * 1000),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=epoch,
                            timestamp=self._wanted[partition],
                        )
                        for partition, epoch in group
                    ],
                )
                for topic, group in by_topic
            ],
        )
