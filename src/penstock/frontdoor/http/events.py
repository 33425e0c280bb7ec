"""Following a topic: `GET /v1/topics/{topic}/events`, as server-sent events.

The id of an event says where the reader is in every partition that it follows, so a browser that
reconnects goes on behind the last event that it got. An id alone comes at the start and with each
beat, so that this holds for a reader that has got no event too. Nothing is buffered for a slow
reader: a partition is read again only when what was read before has left, and the server cuts off a
reader that takes nothing for a while.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from penstock.broker.doors.calls import TopicInfo
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.limits import STREAM_BEAT_S, STREAM_PARTITIONS_MAX
from penstock.frontdoor.http.messages import StoredRecords
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.read import ENCODING, ENCODINGS, stored
from penstock.frontdoor.http.requests import Answer, Request
from penstock.frontdoor.http.routes import Parameter, Route
from penstock.frontdoor.remote.following import Following
from penstock.frontdoor.remote.reading import EARLIEST, LATEST, Chunk
from penstock.model.errors import Refused
from penstock.model.limits import KIB

EVENTS_TYPE: Final = "text/event-stream"
LAST_ID_HEADER: Final = "last-event-id"
# Read at a time: what a reader that stops in the middle costs.
CHUNK_RECORDS_MAX: Final = 500
CHUNK_BYTES_MAX: Final = 256 * KIB
_WORDS: Final = {"latest": LATEST, "earliest": EARLIEST}
_OFFSET_MAX: Final = 2**63 - 1
_ENCODER: Final = msgspec.json.Encoder()

Positions = dict[int, int]


class Trimmed(msgspec.Struct):
    """From `offset` up to `next_offset` the records were gone before the reader got them."""

    partition: int
    offset: int
    next_offset: int


async def events(context: Context, request: Request) -> Answer:
    encoding = request.choice("encoding", ENCODINGS)
    word = request.choice("from", ("latest", "earliest"))
    topic = await context.topics.find(request.parameters["topic"])
    partitions = _partitions(request, topic)
    known = _known(request)
    # Partitions that came after the reader's last event have only records that it has not got.
    start = EARLIEST if known else _WORDS[word]
    positions: Positions = {}
    for partition in partitions:
        offset = known.get(partition)
        positions[partition] = (
            await context.reader.find(topic, partition, start) if offset is None else offset
        )
    context.open_stream()
    pieces = _stream(context, request, topic, positions, encoding)
    # Started here, so that its end is reached even if nobody ever reads from it.
    await anext(pieces)
    return Answer(200, b"", EVENTS_TYPE, {"x-accel-buffering": "no"}, pieces)


def _partitions(request: Request, topic: TopicInfo) -> list[int]:
    given = request.text("partition")
    if given is None:
        if topic.partitions > STREAM_PARTITIONS_MAX:
            detail = (
                f"Topic {topic.name} has {topic.partitions} partitions, but a stream follows at "
                f"most {STREAM_PARTITIONS_MAX}: say which with 'partition'."
            )
            raise Problem(400, detail)
        return list(range(topic.partitions))
    partition = request.number("partition", 0, 0, 2**31 - 1)
    if partition >= topic.partitions:
        detail = f"Topic {topic.name} has no partition {partition}: it has {topic.partitions}."
        raise Problem(404, detail, reason="unknown_topic_or_partition")
    return [partition]


def _known(request: Request) -> Positions:
    """Where the reader was, by the id of its last event."""
    given = request.headers.get(LAST_ID_HEADER) or request.text("last_event_id")
    if not given:
        return {}
    positions: Positions = {}
    for part in given.split(","):
        partition, _, offset = part.partition(":")
        numbers = [text for text in (partition, offset) if text.isascii() and text.isdigit()]
        if len(numbers) < 2 or len(part) > 40:
            raise Problem(400, f"The Last-Event-ID {given[:200]!r} is not one of this stream.")
        if int(offset) > _OFFSET_MAX:
            detail = f"The Last-Event-ID has the offset {offset}, but {_OFFSET_MAX:,} is the last."
            raise Problem(400, detail)
        positions[int(partition)] = int(offset)
    return positions


async def _stream(
    context: Context, request: Request, topic: TopicInfo, positions: Positions, encoding: str
) -> AsyncGenerator[bytes, None]:
    following = Following(
        context.reader,
        topic,
        records_max=CHUNK_RECORDS_MAX,
        bytes_max=CHUNK_BYTES_MAX,
        skips_trimmed=True,
    )
    now_s = asyncio.get_running_loop().time
    gone = asyncio.ensure_future(request.gone())
    try:
        yield b""
        for partition, offset in positions.items():
            following.read(partition, offset)
        yield b": following\n" + _id(positions) + b"\n"
        looked_at = now_s()
        with context.stopping.watched() as stopping:
            while not gone.done() and not stopping.done():
                chunks = await following.next([gone, stopping], STREAM_BEAT_S)
                for partition, chunk in chunks:
                    if chunk.records:
                        yield _events(chunk, partition, positions, encoding)
                    elif chunk.log_start_offset > positions[partition]:
                        yield _trimmed(chunk, partition, positions)
                    positions[partition] = chunk.next_offset
                    following.read(partition, chunk.next_offset)
                if not chunks and not stopping.done():
                    yield b": beat\n" + _id(positions) + b"\n"
                if not chunks or now_s() - looked_at >= STREAM_BEAT_S:
                    looked_at = now_s()
                    await _take_on(context, request, topic, positions, following)
    except Refused as refused:
        yield error_event(Problem.of(refused))
    except Problem as problem:
        yield error_event(problem)
    finally:
        gone.cancel()
        following.close()
        context.close_stream()


async def _take_on(
    context: Context,
    request: Request,
    topic: TopicInfo,
    positions: Positions,
    following: Following,
) -> None:
    """Begins with partitions that the topic has got since."""
    for partition in _partitions(request, await context.topics.find(topic.name)):
        if partition not in positions:
            positions[partition] = 0
            following.read(partition, 0)


def _events(chunk: Chunk, partition: int, positions: Positions, encoding: str) -> bytes:
    pieces: list[bytes] = []
    for record in chunk.records:
        positions[partition] = record.offset + 1
        data = _ENCODER.encode(stored(record, partition, encoding))
        pieces += (_id(positions), b"event: record\ndata: ", data, b"\n\n")
    return b"".join(pieces)


def _trimmed(chunk: Chunk, partition: int, positions: Positions) -> bytes:
    data = _ENCODER.encode(Trimmed(partition, positions[partition], chunk.next_offset))
    positions[partition] = chunk.next_offset
    return b"".join((_id(positions), b"event: trimmed\ndata: ", data, b"\n\n"))


def _id(positions: Positions) -> bytes:
    """The next offset of each partition, as a line."""
    text = ",".join(f"{each}:{offset}" for each, offset in positions.items())
    return f"id: {text}\n".encode()


def error_event(problem: Problem) -> bytes:
    """Why the stream ends; the reader may come back with the id of its last event."""
    data = _ENCODER.encode(problem.document)
    return b"event: error\ndata: " + data + b"\n\n"


ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/events",
        handler=events,
        summary="Follow a topic by server-sent events.",
        help="Each event `record` holds one record, as JSON in a single line, like those of the "
        "route that reads. A reader that comes back with `Last-Event-ID` goes on behind that "
        "event; an id comes at the start too, and whenever nothing has come for a while. "
        "Partitions that the topic gets meanwhile are followed from their first record. The event "
        "`trimmed` says that records of a `partition` were gone before they could be read, from "
        "`offset` up to `next_offset`, where the stream goes on. The event `error` holds a problem "
        "document and ends the stream.",
        parameters=(
            Parameter(
                name="partition",
                help="Follow this one only.",
                schema={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
            ),
            Parameter(
                name="from",
                help="Where a new reader starts.",
                schema={"type": "string", "enum": ["latest", "earliest"], "default": "latest"},
            ),
            ENCODING,
            Parameter(
                name="last_event_id",
                help="As the header Last-Event-ID, for readers that can't send it.",
            ),
            Parameter(
                name="Last-Event-ID", place="header", help="The id of the last event that was got."
            ),
        ),
        answers={200: StoredRecords},
        answer_types=(EVENTS_TYPE,),
        problems=(404, 503),
    ),
)
