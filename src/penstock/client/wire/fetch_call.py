"""One Fetch of one partition from its leader, and what its answer means."""

import threading
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from penstock.client.connection import reason_of_failure
from penstock.client.errors import BrokerUnreachable
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import Malformed, UnknownTopic, name_of, place, refused
from penstock.client.wire.link import VERSION_NEWEST, Link
from penstock.client.wire.links import Links
from penstock.client.wire.patience import Patience, Stopped
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.topics import ABSENCE_S_MAX, NO_TOPIC_ID
from penstock.model.endpoint import Endpoint
from penstock.model.ids import TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

# The last version in which topics go by name.
VERSION_BY_NAME_MAX = 12
_UNKNOWN_CODES = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Outcome(Enum):
    DATA = auto()
    OUT_OF_RANGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    outcome: Outcome
    data: PartitionData


class FetchCall:
    """Asks the leader of one partition, at that time; one thread uses it.

    The topic is named by its id where brokers have such: one that was deleted and made again under
    the same name holds other records, and reading on there would mix them up.
    """

    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        partition: TopicPartition,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._links = links
        self._map = cluster_map
        self._partition = partition
        self._stop = stop or threading.Event()
        self._topic_id = NO_TOPIC_ID
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._endpoint: Endpoint | None = None

    def ask(self, patience: Patience, offset: int, bytes_max: int, wait_ms: int) -> FetchAnswer:
        """The leader's answer, after as many attempts as patience allows."""
        while True:
            endpoint, epoch = self._locate(patience)
            try:
                link = self._link_to(endpoint, wait_ms)
                answer = link.ask(
                    self._request(epoch, offset, bytes_max, wait_ms),
                    FetchResponse,
                    version_max=self._version_max(),
                )
            except OSError as error:
                self.close()
                self._map.forget_leader(self._partition)
                reason = reason_of_failure(error, self._settings.request_timeout_s)
                patience.pause(f"{endpoint}: {reason}", is_silent=True)
                continue
            found = self._understand(answer, patience)
            if found is not None:
                return found

    def abort(self) -> None:
        """From another thread: whatever is under way ends at once."""
        with self._lock:
            if self._link is not None:
                self._link.abort()

    def close(self) -> None:
        """Gives the link back."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            assert self._endpoint is not None
            self._links.give_back(self._endpoint, link)

    # The way to the leader

    def _locate(self, patience: Patience) -> tuple[Endpoint, int]:
        """The leader's address and epoch, once there is one."""
        while True:
            try:
                endpoint, epoch, topic_id = self._map.locate(self._partition)
            except BrokerUnreachable as error:
                patience.pause(error)
            except UnknownTopic as error:
                if patience.refused_s > ABSENCE_S_MAX:
                    raise
                patience.pause(error)
            else:
                self._check_topic_id(topic_id)
                if endpoint is not None:
                    return endpoint, epoch
                self._map.forget_leader(self._partition)
                patience.pause(f"{place(self._partition)} has no leader", is_silent=True)

    def _check_topic_id(self, topic_id: UUID) -> None:
        if self._topic_id not in (NO_TOPIC_ID, topic_id):
            topic = self._partition.topic
            sentence = f"Topic {topic} was deleted and created again while it was read."
            raise UnknownTopic(sentence, topic=topic)
        self._topic_id = topic_id

    def _link_to(self, endpoint: Endpoint, wait_ms: int) -> Link:
        timeout_s = self._settings.request_timeout_s + wait_ms / 1000
        if self._link is not None and endpoint != self._endpoint:
            self.close()
        link = self._link
        if link is None:
            link = self._links.borrow(endpoint, timeout_s)
            with self._lock:
                self._link, self._endpoint = link, endpoint
        if self._stop.is_set():
            # Who stopped this may have looked for a link to abort before there was one.
            raise Stopped
        link.set_timeout(timeout_s)
        return link

    # Request and answer

    def _version_max(self) -> int:
        return VERSION_BY_NAME_MAX if self._topic_id == NO_TOPIC_ID else VERSION_NEWEST

    def _request(self, epoch: int, offset: int, bytes_max: int, wait_ms: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=bytes_max,
        )
        topic = FetchTopic(
            topic=self._partition.topic, topic_id=self._topic_id, partitions=[wanted]
        )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(self._settings.isolation_read_committed),
            topics=[topic],
        )

    def _understand(self, answer: FetchResponse, patience: Patience) -> FetchAnswer | None:
        """None when the question is to be put again."""
        data = self._our_part(answer)
        if data is None:
            self._without_our_part(answer, patience)
            return None
        code = answer.error_code or data.error_code
        if code == ErrorCode.NONE:
            return FetchAnswer(outcome=Outcome.DATA, data=data)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return FetchAnswer(outcome=Outcome.OUT_OF_RANGE, data=data)
        if self._map.take_hint(self._partition, data.current_leader, answer.node_endpoints):
            patience.check(f"the leader of {place(self._partition)} keeps changing")
        else:
            self._refused(code, patience)
        return None

    def _our_part(self, answer: FetchResponse) -> PartitionData | None:
        parts = [one for topic in answer.responses for one in topic.partitions]
        if not parts:
            return None
        if len(parts) > 1 or parts[0].partition_index != self._partition.partition:
            raise Malformed(f"A broker was asked for {place(self._partition)} and sent another.")
        return parts[0]

    def _without_our_part(self, answer: FetchResponse, patience: Patience) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code, patience)
            return
        # A broker that holds a client back leaves out what it would have sent.
        if answer.throttle_time_ms > 0:
            patience.progress()
            self._stop.wait(answer.throttle_time_ms / 1000)
        patience.pause(f"the answer leaves out {place(self._partition)}")

    def _refused(self, code: int, patience: Patience) -> None:
        if code not in RETRIABLE:
            raise refused(f"to read {place(self._partition)}", code)
        self._map.forget_leader(self._partition)
        if code in _UNKNOWN_CODES and patience.refused_s > ABSENCE_S_MAX:
            sentence = f"The broker no longer knows {place(self._partition)}."
            raise UnknownTopic(sentence, topic=self._partition.topic)
        patience.pause(f"{place(self._partition)}: {name_of(code)}")
