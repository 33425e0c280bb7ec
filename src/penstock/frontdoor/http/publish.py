"""Writing records: `POST /v1/topics/{topic}/records`, in every form that a body may have.

Everything about a request is checked before its first record is written. Records are then brought
to their partitions side by side, and each gets its own result.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from penstock.frontdoor.http import cloud_events
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.limits import IDEMPOTENCY_KEY_LENGTH_MAX, RECORDS_PER_REQUEST_MAX
from penstock.frontdoor.http.messages import NewRecord, NewRecords, Written, WrittenRecords
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import (
    BINARY_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    TEXT_TYPE,
    Answer,
    Request,
    check_utf8,
    decode_json,
    json_answer,
)
from penstock.frontdoor.http.routes import Parameter, Route
from penstock.frontdoor.http.values import (
    check_count,
    compact,
    delivery_headers,
    header_pairs,
    key_bytes,
    too_many,
    value_bytes,
)
from penstock.frontdoor.remote.writing import Outcome, Wanted, in_trace, refusal_of_all
from penstock.model.delivery_headers import DELAY_MS_MAX
from penstock.model.errors import Reason, Refused
from penstock.model.limits import KIB
from penstock.model.trace_context import TRACEPARENT, TRACESTATE
from penstock.records.rows import Row

T = TypeVar("T")

KEY_HEADER: Final = "idempotency-key"
MULTI_STATUS: Final = 207

# Parameters that say of one record what else would be in its JSON.
_OF_ONE_RECORD: Final = ("key", "partition", "timestamp", "header", "delay_ms", "deliver_at")

_NOT_OF_MANY: Final = tuple(name for name in _OF_ONE_RECORD if name != "partition")

_RECORD: Final = msgspec.json.Decoder(NewRecord)
_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)
# How msgspec says where something does not fit.
_AT: Final = " - at `$"
# Of lines, decoded at a time.
_LINES_BYTES: Final = 64 * KIB


async def publish(context: Context, request: Request) -> Answer:
    name = request.parameters["topic"]
    key = _idempotency_key(request)
    body = await request.body()
    wanted = _records(request, body, context.now_ms())
    parent = request.headers.get(TRACEPARENT)
    if parent is not None:
        wanted = in_trace(wanted, parent, request.headers.get(TRACESTATE), key)
    outcomes = await context.writer.write(name, wanted, key)
    refused = refusal_of_all(outcomes)
    if refused is not None:
        raise Problem.of(refused)
    return _answer(_results(outcomes, len(wanted)))


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get(KEY_HEADER)
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        detail = f"The Idempotency-Key must have 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} characters."
        raise Problem(400, detail)
    return key


# Reading the body


def _records(request: Request, body: bytes, now_ms: int) -> Sequence[Wanted]:
    content_type = request.content_type
    read = cloud_events.FORMS.get(content_type)
    if read is None and cloud_events.is_binary(request):
        read = cloud_events.binary
    if read is not None:
        _refuse_parameters(request, ("lines", *_NOT_OF_MANY), "CloudEvents")
        return [(row, _partition(request)) for row in read(request, body, now_ms)]
    if content_type == JSON_TYPE:
        _refuse_parameters(request, ("lines", *_OF_ONE_RECORD), "records in JSON")
        return _rows(_json_records(body), now_ms)
    if content_type == NDJSON_TYPE:
        return _lines(request, body, now_ms)
    _refuse_parameters(request, ("lines",), "a body that is one value")
    return [_single(request, body, now_ms)]


class _RawRecords(msgspec.Struct, forbid_unknown_fields=True):
    """As NewRecords, whose records are decoded one by one: all of them would take many times the
    memory of the body."""

    records: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]


_BATCH: Final = msgspec.json.Decoder(_RawRecords)


def _json_records(body: bytes) -> Iterator[NewRecord]:
    check_count(body, "records")
    for index, raw in enumerate(decode_json(_BATCH, body).records):
        try:
            yield _RECORD.decode(raw)
        except msgspec.ValidationError as bad:
            raise Problem(400, _fault(index, str(bad))) from None


def _fault(index: int, said: str) -> str:
    """What msgspec says of a record alone, with its place in the body."""
    what, at, path = said.rpartition(_AT)
    if not at:
        what, path = said, "`"
    return f"The body does not fit: {what[:1].lower()}{what[1:]}{_AT}.records[{index}]{path}."


def _rows(records: Iterable[NewRecord], now_ms: int, first: int = 0) -> list[Wanted]:
    """`first` is the number of the first in the request."""
    wanted: list[Wanted] = []
    for index, each in enumerate(records, first):
        headers = header_pairs(each.headers, index) if each.headers else ()
        if each.delay_ms is not None or each.deliver_at is not None:
            later = delivery_headers(each.delay_ms, each.deliver_at, f"Record {index}")
            headers = [*headers, *later]
        timestamp = each.timestamp
        row = Row(
            key_bytes(each, index),
            value_bytes(each, index),
            headers,
            now_ms if timestamp is None else timestamp,
        )
        wanted.append((row, each.partition))
    return wanted


def _lines(request: Request, body: bytes, now_ms: int) -> list[Wanted]:
    """A record in each line, or a value alone; empty lines count for nothing."""
    wanted: list[Wanted] = []
    if request.choice("lines", ("records", "values")) == "records":
        _refuse_parameters(request, _OF_ONE_RECORD, "lines that are records")
        for records in _decode_lines(_RECORD.decode_lines, body):
            wanted += _rows(records, now_ms, len(wanted))
        return wanted
    _refuse_parameters(request, _NOT_OF_MANY, "lines that are values")
    partition = _partition(request)
    for values in _decode_lines(_VALUE.decode_lines, body):
        wanted += [(Row(None, compact(bytes(raw)), (), now_ms), partition) for raw in values]
    return wanted


def _decode_lines(decode: Callable[[bytes], list[T]], body: bytes) -> Iterator[list[T]]:
    """Some lines at a time: decoded, all of them would take many times the memory of the body."""
    start = count = 0
    while start < len(body):
        end = body.find(b"\n", start + _LINES_BYTES) + 1 or len(body)
        lines = body[start:end]
        try:
            check_utf8(lines)
            found = decode(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _bad_line(decode, lines, body.count(b"\n", 0, start) + 1) from None
        count += len(found)
        if count > RECORDS_PER_REQUEST_MAX:
            raise too_many()
        yield found
        start = end
    if not count:
        raise Problem(400, "The body holds no records.")


def _bad_line(decode: Callable[[bytes], list[Any]], lines: bytes, first: int) -> Problem:
    """The first line that can't be decoded, found once it is known that there is one. `first` is
    the number of the first line."""
    for number, line in enumerate(lines.split(b"\n"), first):
        try:
            check_utf8(line)
            decode(line)
        except RecursionError:
            return Problem(400, f"Line {number} is nested too deeply.", reason="json_too_deep")
        except UnicodeDecodeError:
            return Problem(400, f"Line {number} of the body is not UTF-8.")
        except msgspec.MsgspecError as bad:
            return Problem(400, f"Line {number} of the body can't be used: {bad}.")
    return Problem(400, "The body must hold one JSON value in each line.")


def _single(request: Request, body: bytes, now_ms: int) -> Wanted:
    """The body is the value; what else a record has is in the query."""
    key = request.text("key")
    headers: list[tuple[str, bytes | None]] = []
    for given in request.query.get("header", ()):
        name, colon, value = given.partition(":")
        if not colon:
            raise Problem(400, f"The header {given[:100]!r} must be NAME:VALUE.")
        headers.append((name, value.encode()))
    delay_ms = request.number("delay_ms", -1, 0, DELAY_MS_MAX)
    deliver_at = request.text("deliver_at")
    headers += delivery_headers(None if delay_ms < 0 else delay_ms, deliver_at, "The record")
    timestamp = request.number("timestamp", now_ms, 0, 2**53)
    if request.content_type == TEXT_TYPE:
        try:
            body.decode()
        except UnicodeDecodeError:
            raise Problem(400, "The text is not UTF-8; send it as binary.") from None
    row = Row(None if key is None else key.encode(), body, headers, timestamp)
    return row, _partition(request)


def _partition(request: Request) -> int | None:
    partition = request.number("partition", -1, 0, 2**31 - 1)
    return None if partition < 0 else partition


def _refuse_parameters(request: Request, names: Sequence[str], what: str) -> None:
    for name in names:
        if name in request.query:
            raise Problem(400, f"The parameter {name!r} can't be used with {what}.")


# Answering


def _results(outcomes: Sequence[Outcome], count: int) -> list[Written | Refused]:
    """What became of each record, in the order of the request."""
    results: list[Written | Refused] = [_UNWRITTEN] * count
    for partition, indexes, offsets in outcomes:
        if isinstance(offsets, Refused):
            for index in indexes:
                results[index] = offsets
        else:
            for index, offset in zip(indexes, offsets, strict=True):
                results[index] = Written(partition, offset)
    return results


_UNWRITTEN: Final = Refused(Reason.UNKNOWN_SERVER_ERROR)


def _answer(outcomes: Sequence[Written | Refused]) -> Answer:
    if not any(isinstance(each, Refused) for each in outcomes):
        return json_answer(WrittenRecords(outcomes))  # type: ignore[arg-type]
    results = [
        Written(error=Problem.of(each).document) if isinstance(each, Refused) else each
        for each in outcomes
    ]
    return json_answer(WrittenRecords(results), MULTI_STATUS)


ROUTES = (
    Route(
        method="POST",
        path="/v1/topics/{topic}/records",
        handler=publish,
        summary="Write records to a topic.",
        help="Answers when the records are safe, with the place of each. 207 says that some were "
        "written and some were not; those with the status 504 may have been. Records of a "
        "partition that do not fit into one batch take several: if one of these is refused, those "
        "behind it are not tried, unless it was refused for its own records. A topic that is "
        "missing is made, if the broker's settings allow that. Keys choose partitions as Kafka's "
        "Java client does (murmur2). With `text/plain` and `application/octet-stream` the body is "
        "the value of one record, and `text/plain` needs the header `Penstock-Text`. CloudEvents "
        "become records of Kafka's CloudEvents binding.",
        parameters=(
            Parameter(
                name="lines",
                help="Whether lines of NDJSON are whole records or only values.",
                schema={"type": "string", "enum": ["records", "values"], "default": "records"},
            ),
            Parameter(name="key", help="The key of a record whose body is its value."),
            Parameter(
                name="partition",
                help="The partition for all records that do not name one; not for JSON records.",
                schema={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
            ),
            Parameter(
                name="timestamp",
                help="Milliseconds since 1970, of a record whose body is its value.",
                schema={"type": "integer", "minimum": 0, "maximum": 2**53},
            ),
            Parameter(
                name="header",
                help="NAME:VALUE, a header of a record whose body is its value; may repeat.",
                schema={"type": "array", "items": {"type": "string", "pattern": "^[^:]*:"}},
            ),
            Parameter(
                name="delay_ms",
                help="How long after its timestamp queues deliver it, if the body is its value.",
                schema={"type": "integer", "minimum": 0, "maximum": DELAY_MS_MAX},
            ),
            Parameter(
                name="deliver_at",
                help="When queues deliver a record whose body is its value: milliseconds since "
                "1970, or a time as in RFC 3339.",
                schema={"type": "string", "maxLength": 100},
            ),
            Parameter(
                name="Idempotency-Key",
                place="header",
                help="Repeated with the same body, nothing is written twice, unless partitions "
                "were added to the topic in between.",
                schema={"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_LENGTH_MAX},
            ),
            Parameter(
                name="traceparent",
                place="header",
                help="The trace (W3C) that records belong to which have no such header themselves; "
                "`tracestate` goes with it.",
            ),
            Parameter(
                name="Penstock-Text",
                place="header",
                help="Must be there with `text/plain`; web pages can't send it.",
            ),
        ),
        bodies={
            JSON_TYPE: NewRecords,
            NDJSON_TYPE: None,
            TEXT_TYPE: None,
            BINARY_TYPE: None,
            **cloud_events.BODIES,
        },
        answers={200: WrittenRecords, MULTI_STATUS: WrittenRecords},
        problems=(404, 409, 413, 415, 429, 504),
    ),
)
