"""Reading records of one partition: Fetch, and Seek for the offset where reading would start."""

from typing import Any

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.context import Call, Context
from penstock.frontdoor.grpc.statuses import invalid
from penstock.frontdoor.grpc.translation import add_records, fitting, to_partition, to_place
from penstock.frontdoor.remote.reading import EARLIEST


async def fetch(
    context: Context, request: messages.FetchRequest, call: Call
) -> messages.FetchReply:
    wait_s = to_wait_s(request, call)
    records_max = to_records_max(request, limits.RECORDS_PER_REPLY)
    place = to_place(request.start, EARLIEST)
    topic = await context.parts.topics.find(request.topic)
    partition = _partition(request, topic)
    offset = await find_offset(context, topic, partition, place)
    reading = context.parts.reader.read(
        topic, partition, offset, records_max=records_max, wait_s=wait_s
    )
    chunk = await (context.unless_stopping(reading) if wait_s else reading)
    records = chunk.records[: fitting(chunk.records)]
    is_cut = len(records) < len(chunk.records)
    reply = messages.FetchReply(
        next_offset=records[-1].offset + 1 if is_cut else chunk.next_offset,
        log_start_offset=chunk.log_start_offset,
        high_watermark=chunk.high_watermark,
    )
    add_records(reply.records, records)
    return reply


async def seek(context: Context, request: messages.SeekRequest, _: Call) -> messages.SeekReply:
    if request.start.WhichOneof("place") is None:
        raise invalid("start", "Say what to look for.")
    place = to_place(request.start, EARLIEST)
    topic = await context.parts.topics.find(request.topic)
    partition = _partition(request, topic)
    return messages.SeekReply(offset=await find_offset(context, topic, partition, place))


async def find_offset(
    context: Context, topic: TopicInfo, partition: int, place: tuple[bool, int]
) -> int:
    is_offset, number = place
    return number if is_offset else await context.parts.reader.find(topic, partition, number)


def _partition(request: messages.FetchRequest | messages.SeekRequest, topic: TopicInfo) -> int:
    return to_partition(topic, request.partition if request.HasField("partition") else None)


def to_records_max(request: Any, otherwise: int) -> int:
    """Of a request with such a field."""
    if not request.HasField("records_max"):
        return otherwise
    if not 1 <= request.records_max <= limits.RECORDS_PER_REPLY_MAX:
        raise invalid("records_max", f"It must be 1 to {limits.RECORDS_PER_REPLY_MAX:,}.")
    return int(request.records_max)


def to_wait_s(request: Any, call: Call) -> float:
    """Of a request with such a field, bounded by its deadline."""
    most_ms = int(limits.WAIT_S_MAX * 1000)
    if not 0 <= request.wait_ms <= most_ms:
        raise invalid("wait_ms", f"It must be 0 to {most_ms:,}.")
    return call.bounded_s(request.wait_ms / 1000)
