"""Produce requests that repeat themselves: only the bytes that differ are read.

A producer's requests to one topic are alike but for the correlation id, the partition and the
records. So the bytes of one are kept as a form, and the next request is compared with it instead of
decoded, which costs a fourth.
"""

import struct
from typing import Final

from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.kafka.primitives import DecodeError, read_varint

FIRST_FLEXIBLE_VERSION: Final = 9
# Where what a request repeats begins: before it are API, version and correlation id.
FORM_POSITION: Final = 8
# Requests of this many partitions are kept ready.
PARTITIONS_KEPT_MAX: Final = 64
# Of a partition, a topic and the request.
_NO_TAGS: bytes = b"\0\0\0"

_INDEX: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">i")
_unpack_index = _INDEX.unpack_from
_unpack_length = _LENGTH.unpack_from


class ProduceForm:
    """What a producer repeats: all before the partition, and all behind the records."""

    __slots__ = (
        "_head",
        "_index_position",
        "_is_flexible",
        "_requests",
        "_rest",
        "_topic",
        "client_id",
        "last",
    )

    def __init__(
        self, head: bytes, request: ProduceRequest, version: int, client_id: str | None
    ) -> None:
        self._head = head
        self._index_position = FORM_POSITION + len(head)
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        topic = request.topic_data[0] if request.topic_data else TopicProduceData()
        self._topic = topic.name, topic.topic_id
        self._rest = request.transactional_id, request.acks, request.timeout_ms
        self.client_id = client_id
        # By partition: a request may be asked which one it named for as long as it waits.
        self._requests: dict[int, tuple[ProduceRequest, PartitionProduceData]] = {}
        # The partition of the last request: its records are to be dropped once they are served, or
        # they would keep the memory that they were received into.
        self.last = PartitionProduceData()

    @classmethod
    def of(
        cls,
        request: ProduceRequest,
        version: int,
        frame: memoryview,
        position: int,
        client_id: str | None,
    ) -> "ProduceForm | None":
        """Of a request to one partition, whose body begins at `position`; None of others, and of
        one with bytes that we would not have written, such as fields that we don't know."""
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return None
        (data,) = request.topic_data[0].partition_data
        if data.records is None or encode(request, version) != frame[position:]:
            return None
        is_flexible = version >= FIRST_FLEXIBLE_VERSION
        behind = len(_NO_TAGS) if is_flexible else 0
        records_at = len(frame) - behind - len(data.records)
        length_size = _varint_size(len(data.records) + 1) if is_flexible else _LENGTH.size
        index_at = records_at - length_size - _INDEX.size
        return cls(bytes(frame[FORM_POSITION:index_at]), request, version, client_id)

    def recall(self, frame: memoryview) -> ProduceRequest | None:
        """The request in this frame, of the same version; None if it is not of this form. The next
        one for the partition is the same object, with other records."""
        index_at = self._index_position
        if frame[FORM_POSITION:index_at] != self._head:
            return None
        try:
            (index,) = _unpack_index(frame, index_at)
            if self._is_flexible:
                # Two bytes hold the length of most batches, which saves two calls.
                low, high = frame[index_at + 4], frame[index_at + 5]
                if low >= 0x80 > high:
                    length, records_at = low & 0x7F | high << 7, index_at + 6
                else:
                    length, records_at = read_varint(frame, index_at + 4)
                end = records_at + length - 1
                if length == 0 or frame[end:] != _NO_TAGS:
                    return None
            else:
                (length,) = _unpack_length(frame, index_at + 4)
                records_at = index_at + 8
                end = records_at + length
                if length < 0 or end != len(frame):
                    return None
        except (struct.error, IndexError, DecodeError):
            return None
        request, data = self._requests.get(index) or self._add(index)
        data.records = frame[records_at:end]
        self.last = data
        return request

    def _add(self, index: int) -> tuple[ProduceRequest, PartitionProduceData]:
        if len(self._requests) >= PARTITIONS_KEPT_MAX:
            self._requests.clear()
        data = PartitionProduceData(index=index)
        name, topic_id = self._topic
        transactional_id, acks, timeout_ms = self._rest
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
        )
        self._requests[index] = request, data
        return request, data


# Of a connection that has learned none yet; it is never asked.
NO_FORM: Final = ProduceForm(b"", ProduceRequest(), FIRST_FLEXIBLE_VERSION, None)


def _varint_size(number: int) -> int:
    return -(-number.bit_length() // 7)
