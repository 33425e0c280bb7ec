"""Sends single records: puts them into batches, chooses partitions, and counts what was written.

For programs that live for a moment. librdkafka's idempotent producer asks for its number half a
second after it was made, however soon a broker answers; this one asks at once.
"""

import threading
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from penstock.client.errors import ClientError, DeliveryFailed
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.producing import ACKS_ALL
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.records.batch import HEADER_SIZE, build_batch
from penstock.records.compression import Codec
from penstock.records.key_hash import partition_of
from penstock.records.record import Record

# A batch of this size is sent at once; a smaller one waits that long for more records.
BATCH_BYTES_MAX = 512 << 10
LINGER_S = 0.005
# What lengths, times and numbers take in a batch at most, beside keys, values and headers.
RECORD_OVERHEAD_BYTES = 40
HEADER_OVERHEAD_BYTES = 10

Headers = tuple[tuple[str, bytes | None], ...]


class RecordProducer:
    """Writes to one topic; only one thread may call it.

    Records with a key go where Java's client puts them (murmur2), as from every door. Those
    without fill a batch in one partition, and then go on to another.
    """

    def __init__(
        self,
        cluster: WireCluster,
        topic: str,
        *,
        acks: int = ACKS_ALL,
        compression: str = "none",
        random: Random | None = None,
    ) -> None:
        """Raises BrokerUnreachable. A topic that is not there is made for the first record, if the
        broker does that."""
        self.topic = TopicName(topic)
        # Whether the topic was made for these records.
        self.is_new = False
        self.sent = 0
        self._partition_count = len(cluster.partitions_known([topic]).get(topic, ()))
        self._cluster = cluster
        self._codec = Codec[compression.upper()]
        self._random = random or Random()
        self._sticky: int | None = None
        self._bytes_max: int | None = None
        # Guards the batches that are being filled, which the thread that waits sends as well.
        self._lock = threading.Condition()
        self._filling: dict[int, list[Record]] = {}
        self._bytes: dict[int, int] = {}
        self._is_closed = False
        self._producer = cluster.producer(acks=acks, idempotent=acks == ACKS_ALL)
        self._lingering = threading.Thread(target=self._linger, name="linger", daemon=True)

    @property
    def partition_count(self) -> int:
        """Makes the topic if it is not there; raises UnknownTopic if the broker does not."""
        if self._partition_count == 0:
            self._partition_count = self._cluster.partition_count(self.topic, may_create=True)
            self.is_new = True
        return self._partition_count

    @property
    def delivered(self) -> int:
        return self._producer.acknowledged

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue a record; waits while too much is under way, so memory stays bounded."""
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        record = Record(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)
        size = _size(record)
        with self._lock:
            chosen = self._choose(key, partition)
            if self.sent == 0:
                self._lingering.start()
            self.sent += 1
            if chosen in self._filling and self._bytes[chosen] + size > self._room():
                self._try(lambda: self._hand_over(chosen))
            self._filling.setdefault(chosen, []).append(record)
            self._bytes[chosen] = self._bytes.get(chosen, HEADER_SIZE) + size
            self._lock.notify()

    def flush(self) -> None:
        """Wait until every record is written; raises DeliveryFailed when one was not."""
        with self._lock:
            self._try(self._hand_over_all)
        self._try(self._producer.flush)

    def close(self) -> None:
        """Gives up what is not written yet; `flush` first to keep it."""
        with self._lock:
            self._is_closed = True
            self._filling.clear()
            self._lock.notify()
        self._producer.close(drop=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _choose(self, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if not 0 <= partition < self.partition_count:
                raise ClientError(
                    f"Topic {self.topic} has no partition {partition}: it has "
                    f"{self.partition_count}, numbered from 0."
                )
            return partition
        if key:
            return partition_of(key, self.partition_count)
        if self._sticky is None:
            self._sticky = self._random.randrange(self.partition_count)
        return self._sticky

    def _room(self) -> int:
        """How large a batch may be; asked when a second record is to share one with the first."""
        if self._bytes_max is None:
            allowed = self._cluster.message_bytes_max(self.topic)
            self._bytes_max = min(BATCH_BYTES_MAX, allowed or BATCH_BYTES_MAX)
        return self._bytes_max

    def _hand_over(self, partition: int) -> None:
        records = self._filling.pop(partition, None)
        if not records:
            return
        del self._bytes[partition]
        if partition == self._sticky:
            self._sticky = None
        batch = bytearray(build_batch(records, codec=self._codec))
        place = TopicPartition(self.topic, PartitionIndex(partition))
        self._producer.send(place, batch, len(records))

    def _hand_over_all(self) -> None:
        for partition in list(self._filling):
            self._hand_over(partition)

    def _linger(self) -> None:
        """Sends what does not fill a batch, so that nothing waits for a slow sender."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._filling or self._is_closed)
                if self._is_closed:
                    return
            time.sleep(LINGER_S)
            with self._lock:
                try:
                    self._hand_over_all()
                except ClientError:
                    # The batch producer remembers it, and the caller hears of it.
                    return

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ClientError as error:
            raise DeliveryFailed(
                f"{self.sent - self.delivered} of {self.sent} records were not delivered; the "
                f"first failed because of this: {str(error).rstrip('.')}."
            ) from None


def _size(record: Record) -> int:
    headers = sum(
        HEADER_OVERHEAD_BYTES + len(name) * 4 + len(value or b"") for name, value in record.headers
    )
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
