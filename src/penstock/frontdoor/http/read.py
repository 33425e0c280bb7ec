"""Reading records: `GET /v1/topics/{topic}/records`, a range of one partition."""

from typing import Final

import msgspec

from penstock.broker.doors.calls import TopicInfo
from penstock.columns.layout import COLUMNS
from penstock.frontdoor.http.arrow import ARROW_TYPE, arrow_answer
from penstock.frontdoor.http.context import Context, unless_gone
from penstock.frontdoor.http.limits import (
    ARROW_RECORDS_MAX,
    RECORDS_PER_ANSWER,
    RECORDS_PER_ANSWER_MAX,
    WAIT_S_MAX,
)
from penstock.frontdoor.http.messages import StoredRecord, StoredRecords
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import (
    BINARY_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    Answer,
    Request,
    json_answer,
)
from penstock.frontdoor.http.routes import Parameter, Route
from penstock.frontdoor.http.values import shown, shown_headers, shown_text
from penstock.frontdoor.remote.reading import EARLIEST, LATEST, Chunk
from penstock.records.record import Record

ENCODINGS: Final = ("auto", "json", "text", "base64")
NEXT_HEADER: Final = "penstock-next-offset"
_TYPES: Final = (JSON_TYPE, NDJSON_TYPE, BINARY_TYPE, ARROW_TYPE)
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_ENCODER: Final = msgspec.json.Encoder()


async def read(context: Context, request: Request) -> Answer:
    encoding = request.choice("encoding", ENCODINGS)
    wait_s = request.number("wait_ms", 0, 0, int(WAIT_S_MAX * 1000)) / 1000
    content_type = _accepted(request)
    if content_type == ARROW_TYPE:
        return await _arrow(context, request)
    if request.text("columns") is not None:
        raise Problem(400, f"Only {ARROW_TYPE} has columns to choose from.")
    limit = request.number("limit", RECORDS_PER_ANSWER, 1, RECORDS_PER_ANSWER_MAX)
    if content_type == BINARY_TYPE and request.text("limit") != "1":
        raise Problem(400, f"{BINARY_TYPE} has one value only, so the limit must be 1.")
    place = _place(request)
    topic = await context.topics.find(request.parameters["topic"])
    partition = choose_partition(request, topic)
    offset = await _offset(context, topic, partition, place)
    reading = context.reader.read(topic, partition, offset, records_max=limit, wait_s=wait_s)
    chunk = await (unless_gone(context, request, reading) if wait_s else reading)
    if content_type == JSON_TYPE:
        return json_answer(_stored(chunk, partition, encoding))
    headers = {NEXT_HEADER: str(chunk.next_offset)}
    if content_type == NDJSON_TYPE:
        lines = [_ENCODER.encode(stored(one, partition, encoding)) for one in chunk.records]
        body = b"".join(line + b"\n" for line in lines)
        return Answer(200, body, NDJSON_TYPE, headers)
    return _binary(chunk, headers)


async def _arrow(context: Context, request: Request) -> Answer:
    """Of one partition, or of all from the same word or time on."""
    place = _place(request)
    topic = await context.topics.find(request.parameters["topic"])
    if place[0] == "offset" or request.text("partition") is not None:
        partitions = [choose_partition(request, topic)]
    else:
        partitions = list(range(topic.partitions))
    starts = {each: await _offset(context, topic, each, place) for each in partitions}
    return await arrow_answer(context, request, topic, starts)


def _accepted(request: Request) -> str:
    """The first known type that the client names; weights are not looked at."""
    given = request.headers.get("accept", "*/*")
    for each in given.split(","):
        name = each.partition(";")[0].strip().lower()
        if name in _TYPES:
            return name
        if name in ("*/*", "application/*", ""):
            return JSON_TYPE
    detail = f"The answer can't be {given[:200]!r}, only {', '.join(_TYPES)}."
    raise Problem(406, detail, reason="not_acceptable")


def _place(request: Request) -> tuple[str, int]:
    """How the start is given, and the number: "offset", "time" or "word"."""
    offset, timestamp = request.text("offset"), request.text("timestamp")
    if offset is not None and timestamp is not None:
        raise Problem(400, "Give an offset or a timestamp, not both.")
    if timestamp is not None:
        return "time", request.number("timestamp", 0, 0, 2**53)
    if offset is None or offset in _WORDS:
        return "word", _WORDS[offset or "earliest"]
    return "offset", request.number("offset", 0, 0, 2**63 - 1)


def choose_partition(request: Request, topic: TopicInfo) -> int:
    if request.text("partition") is None and topic.partitions > 1:
        detail = (
            f"Topic {topic.name} has {topic.partitions} partitions: say which with 'partition'."
        )
        raise Problem(400, detail)
    partition = request.number("partition", 0, 0, 2**31 - 1)
    if partition >= topic.partitions:
        detail = f"Topic {topic.name} has no partition {partition}: it has {topic.partitions}."
        raise Problem(404, detail, reason="unknown_topic_or_partition")
    return partition


async def _offset(
    context: Context, topic: TopicInfo, partition: int, place: tuple[str, int]
) -> int:
    kind, number = place
    if kind == "offset":
        return number
    return await context.reader.find(topic, partition, number)


def _stored(chunk: Chunk, partition: int, encoding: str) -> StoredRecords:
    return StoredRecords(
        records=[stored(record, partition, encoding) for record in chunk.records],
        next_offset=chunk.next_offset,
        log_start_offset=chunk.log_start_offset,
        high_watermark=chunk.high_watermark,
    )


def stored(record: Record, partition: int, encoding: str) -> StoredRecord:
    key, key_encoding = shown_text(record.key, "text")
    value, value_encoding = shown(record.value, encoding)
    return StoredRecord(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=key,
        key_encoding=key_encoding,
        value=value,
        encoding=value_encoding,
        headers=shown_headers(record.headers) if record.headers else [],
    )


def _binary(chunk: Chunk, headers: dict[str, str]) -> Answer:
    if not chunk.records:
        return Answer(204, b"", BINARY_TYPE, headers)
    record = chunk.records[0]
    headers["penstock-offset"] = str(record.offset)
    headers["penstock-timestamp"] = str(record.timestamp_ms)
    return Answer(200, record.value or b"", BINARY_TYPE, headers)


PARTITION = Parameter(
    name="partition",
    help="Needed where the topic has more than one.",
    schema={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
)
ENCODING = Parameter(
    name="encoding",
    help="How values are shown; 'auto' takes the first of json, text and base64 that fits.",
    schema={"type": "string", "enum": list(ENCODINGS), "default": "auto"},
)

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/records",
        handler=read,
        summary="Read records of a partition.",
        help="From an offset or a time on, as JSON, as NDJSON (a record in each line), or as the "
        "bytes of one value. Only records that are safe are shown. Go on at `next_offset`, in "
        "JSON a field and otherwise the header `Penstock-Next-Offset`. As an Arrow stream, all "
        "records to the end are read, of all partitions if none is named; the node needs the extra "
        "`arrow` for it, and does not wait.",
        parameters=(
            PARTITION,
            Parameter(
                name="offset",
                help="Where to start: a number, 'earliest' (the default) or 'latest'.",
                schema={
                    "anyOf": [
                        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
                        {"type": "string", "enum": ["earliest", "latest"]},
                    ]
                },
            ),
            Parameter(
                name="timestamp",
                help="Where to start: the first record at or after these milliseconds since 1970.",
                schema={"type": "integer", "minimum": 0, "maximum": 2**53},
            ),
            Parameter(
                name="limit",
                help=f"At most this many records: up to {RECORDS_PER_ANSWER_MAX:,}, and "
                f"{RECORDS_PER_ANSWER} if nothing is said; as Arrow any number, and all.",
                schema={"type": "integer", "minimum": 1, "maximum": ARROW_RECORDS_MAX},
            ),
            Parameter(
                name="wait_ms",
                help="Wait this long for the first record.",
                schema={
                    "type": "integer",
                    "minimum": 0,
                    "maximum": int(WAIT_S_MAX * 1000),
                    "default": 0,
                },
            ),
            ENCODING,
            Parameter(
                name="columns",
                help=f"For Arrow: some of {', '.join(COLUMNS)}, with commas between them.",
            ),
        ),
        answers={200: StoredRecords, 204: None},
        answer_types=_TYPES,
        problems=(404, 406, 416, 503, 504),
    ),
)
