"""The bytes that answer a successful produce to one partition, with three numbers left to fill in.

A small produce costs little more than its answer does, and all answers for a partition in one
version are alike but for the offset, the append time and the log's start. So the message is encoded
once, with numbers that can be found again, and kept as a form.
"""

from functools import lru_cache
from struct import Struct
from uuid import UUID

from penstock.broker.produce import Appended
from penstock.model.ids import NO_TOPIC_ID
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

FORMS_MAX = 8_192
FIRST_APPEND_TIME_VERSION = 2
FIRST_LOG_START_VERSION = 5

_pack_1 = Struct(">q").pack
_pack_2 = Struct(">qq").pack
_pack_3 = Struct(">qqq").pack
# Not found by chance in a topic's name, which is ASCII, nor in an id, which is random.
_MARKS = (-0x0123456789ABCDEF, -0x1123456789ABCDEF, -0x2123456789ABCDEF)


class ReplyForm:
    """An answer for one partition in one version."""

    __slots__ = ("_count", "_head", "_tail")

    def __init__(self, encoded: bytes, count: int) -> None:
        marks = Struct(f">{count}q").pack(*_MARKS[:count])
        self._head, self._tail = encoded.split(marks)
        self._count = count

    def fill(self, appended: Appended) -> bytes:
        base_offset, append_time_ms, log_start_offset, _, _ = appended
        if self._count == 3:
            numbers = _pack_3(base_offset, append_time_ms, log_start_offset)
        elif self._count == 2:
            numbers = _pack_2(base_offset, append_time_ms)
        else:
            numbers = _pack_1(base_offset)
        return self._head + numbers + self._tail


@lru_cache(FORMS_MAX)
def reply_form(version: int, topic: str | UUID, index: int) -> ReplyForm:
    """The form for a topic by its name, or by its id in versions that know ids alone."""
    name, topic_id = (topic, NO_TOPIC_ID) if isinstance(topic, str) else ("", topic)
    base_offset, append_time_ms, log_start_offset = _MARKS
    answer = PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start_offset,
    )
    response = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
    encoded = encode(ProduceResponse(responses=[response]), version)
    count = 1 + (version >= FIRST_APPEND_TIME_VERSION) + (version >= FIRST_LOG_START_VERSION)
    return ReplyForm(encoded, count)
