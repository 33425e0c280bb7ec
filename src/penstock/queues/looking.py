"""What a queue with delays or order per key has to know of records before it delivers them: when
their producers want them delivered, and the hashes of their keys.

Times are in headers (model/delivery_headers.py). A producer may be wrong: a time that is over is
now, one too far away is the farthest, and what is not a time is now. The last two are counted.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from penstock.model import delivery_headers
from penstock.model.delivery_headers import DELAY_MS_MAX as DELAY_MS_MAX
from penstock.model.durations import duration_ms
from penstock.model.file_ranges import FileRange
from penstock.model.limits import KIB
from penstock.model.topic_config import TimestampType
from penstock.queues.commands import Later, ShareSettings
from penstock.queues.key_order import KeyAt
from penstock.queues.layout import QueueKey
from penstock.queues.reading import LogBatch
from penstock.records.batch import BatchHeader, batch_payload, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.raw_records import Skimmed, header_values, skim_records

logger = logging.getLogger(__name__)

DELIVER_AT: Final = delivery_headers.DELIVER_AT.encode()
DELIVER_AFTER: Final = delivery_headers.DELIVER_AFTER.encode()
EXPIRE_AFTER: Final = delivery_headers.EXPIRE_AFTER.encode()
# Both begin with it: a batch without it has no such header.
_MARK: Final = b"penstock.deliver.a"
_TEXT_LENGTH_MAX: Final = 100

# How many records and bytes a poll looks into at a time; but always into one batch with data.
LOOKED_RECORDS_MAX: Final = 5_000
LOOKED_BYTES_MAX: Final = 1024 * KIB
# Wrong times in headers are reported this often at most.
WRONG_TIMES_REPORT_S: Final = 60.0
# What is larger is looked into by a worker thread.
LOOKED_INLINE_BYTES_MAX: Final = 16 * KIB


@dataclass(slots=True)
class Looked:
    """What was found in some batches."""

    later: list[Later] = field(default_factory=list)
    keys: list[KeyAt] = field(default_factory=list)
    # Times that were too far away, and headers that are not times.
    clamped_count: int = 0
    malformed_count: int = 0


class WrongTimes:
    """Headers of producers that are not times, or times too far away; reported now and then."""

    __slots__ = ("_reported_at", "clamped_count", "malformed_count")

    def __init__(self) -> None:
        self.clamped_count = 0
        self.malformed_count = 0
        self._reported_at: float | None = None

    def count(self, looked: Looked, key: QueueKey, now: float) -> None:
        """At the time `now` of the monotonic clock."""
        self.clamped_count += looked.clamped_count
        self.malformed_count += looked.malformed_count
        is_news = bool(looked.clamped_count or looked.malformed_count)
        if is_news and self._is_over(now):
            self._reported_at = now
            text = "producers asked %s for a time that is too far away %d times, and for none %d"
            logger.warning(text, key, self.clamped_count, self.malformed_count)

    def _is_over(self, now: float) -> bool:
        return self._reported_at is None or now >= self._reported_at + WRONG_TIMES_REPORT_S


def looked_at_a_time(batches: Sequence[LogBatch]) -> Sequence[LogBatch]:
    """The first of them, as many as may be looked into in one go."""
    records = size = 0
    for index, batch in enumerate(batches):
        if not batch.is_data:
            continue
        is_first = records == 0
        records += batch.record_count
        size += batch.size
        if not is_first and (records > LOOKED_RECORDS_MAX or size > LOOKED_BYTES_MAX):
            return batches[:index]
    return batches


def look_into(
    found: FileRange,
    batches: Sequence[LogBatch],
    *,
    first: int,
    now_ms: int,
    settings: ShareSettings,
) -> Looked:
    """Of the records from offset `first` on. It reads and decodes: for worker threads, if large."""
    looked = Looked()
    for batch in batches:
        if not batch.is_data or batch.last < first:
            continue
        data = found.file.pread(batch.size, found.position + batch.position)
        header = parse_header(data)
        try:
            payload = batch_payload(data, header)
            is_marked = settings.has_delays and _MARK in payload
            keys = keys_of(payload, header, first) if settings.has_key_order else []
            later = _later(payload, header, first, now_ms, looked) if is_marked else []
        except CorruptBatch:
            # The producer's bytes go on as they are: the consumer finds out what is wrong with
            # them.
            continue
        looked.keys += keys
        looked.later += later
    return looked


def expired_in(
    found: FileRange, batches: Sequence[LogBatch], *, now_ms: int, settings: ShareSettings
) -> list[tuple[int, int]]:
    """First and last offsets of records whose time to live is over. Like `look_into`, it reads and
    decodes."""
    spans: list[tuple[int, int]] = []
    for batch in batches:
        if not batch.is_data:
            continue
        data = found.file.pread(batch.size, found.position + batch.position)
        header = parse_header(data)
        try:
            payload = batch_payload(data, header)
            if EXPIRE_AFTER in payload or _is_partly_over(header, now_ms, settings.expiry_ms):
                spans += _expired_singly(payload, header, now_ms, settings.expiry_ms)
            elif settings.expiry_ms and header.max_timestamp + settings.expiry_ms <= now_ms:
                spans.append((header.base_offset, header.last_offset))
        except CorruptBatch:
            continue
    return spans


def _is_partly_over(header: BatchHeader, now_ms: int, expiry_ms: int) -> bool:
    """The first record need not be the oldest, so only a batch that is all too old is simple."""
    return bool(expiry_ms) and header.max_timestamp + expiry_ms > now_ms


def _expired_singly(
    payload: bytes, header: BatchHeader, now_ms: int, expiry_ms: int
) -> Iterator[tuple[int, int]]:
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_ms = header.max_timestamp if is_append_time else header.base_timestamp
    for end, timestamp_delta, delta, _, value_at in _skim(payload, header):
        headers = header_values(payload, value_at, end)
        # What is not a duration counts for nothing.
        own_ms = _after_ms(headers[EXPIRE_AFTER]) if EXPIRE_AFTER in headers else None
        after_ms = expiry_ms if own_ms is None else own_ms
        timestamp_ms = base_ms if is_append_time else base_ms + timestamp_delta
        if (own_ms is not None or after_ms) and timestamp_ms + after_ms <= now_ms:
            offset = header.base_offset + delta
            yield offset, offset


def keys_of(payload: bytes, header: BatchHeader, first: int) -> list[KeyAt]:
    """Of the records that have a key."""
    base = header.base_offset
    since = first - base
    return [
        (base + delta, hash(key))
        for _, _, delta, key, _ in _skim(payload, header)
        if key is not None and delta >= since
    ]


def _skim(payload: bytes, header: BatchHeader) -> Iterator[Skimmed]:
    return skim_records(payload, header.record_count, header.last_offset_delta)


def keys_within(
    found: FileRange, batches: Sequence[LogBatch], spans: Sequence[tuple[int, int]]
) -> list[KeyAt]:
    """Of the records that lie in the spans, which are in order. For worker threads."""
    keys: list[KeyAt] = []
    for batch in batches:
        index = bisect_left(spans, batch.first, key=itemgetter(1))
        if not batch.is_data or index == len(spans) or spans[index][0] > batch.last:
            continue
        data = found.file.pread(batch.size, found.position + batch.position)
        header = parse_header(data)
        try:
            all_keys = keys_of(batch_payload(data, header), header, batch.first)
        except CorruptBatch:
            continue
        for offset, key in all_keys:
            while index < len(spans) and spans[index][1] < offset:
                index += 1
            if index < len(spans) and spans[index][0] <= offset:
                keys.append((offset, key))
    return keys


def _later(
    payload: bytes, header: BatchHeader, first: int, now_ms: int, looked: Looked
) -> list[Later]:
    """Neighbours that are due at the same time are one."""
    later: list[Later] = []
    base, base_ms = header.base_offset, header.base_timestamp
    if is_append_time := header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        base_ms = header.max_timestamp
    # Where the next record is that may have such a header: all others are skipped.
    mark_at = payload.find(_MARK)
    for end, timestamp_delta, delta, _, value_at in _skim(payload, header):
        if mark_at < 0:
            break
        if mark_at >= end:
            continue
        mark_at = payload.find(_MARK, end)
        offset = base + delta
        if offset < first:
            continue
        timestamp_ms = base_ms if is_append_time else base_ms + timestamp_delta
        due_ms = _due_ms(header_values(payload, value_at, end), timestamp_ms, looked)
        if due_ms <= now_ms:
            continue
        if due_ms > now_ms + DELAY_MS_MAX:
            looked.clamped_count += 1
            due_ms = now_ms + DELAY_MS_MAX
        if later and later[-1].last + 1 == offset and later[-1].due_ms == due_ms:
            later[-1] = Later(later[-1].first, offset, due_ms)
        else:
            later.append(Later(offset, offset, due_ms))
    return later


def _due_ms(headers: Mapping[bytes, bytes | None], timestamp_ms: int, looked: Looked) -> int:
    """0 where the record does not say, or where what it says is not a time."""
    if DELIVER_AT in headers:
        due_ms = _time_ms(headers[DELIVER_AT])
    elif DELIVER_AFTER in headers:
        after_ms = _after_ms(headers[DELIVER_AFTER])
        due_ms = None if after_ms is None else max(0, timestamp_ms + after_ms)
    else:
        return 0
    if due_ms is None:
        looked.malformed_count += 1
        return 0
    return due_ms


def _text(value: bytes | None) -> str:
    if value is None or len(value) > _TEXT_LENGTH_MAX:
        return ""
    return value.decode("ascii", "replace").strip()


def _time_ms(value: bytes | None) -> int | None:
    if value is not None and value.isdigit() and len(value) <= _TEXT_LENGTH_MAX:
        return int(value)
    return delivery_headers.moment_ms(_text(value))


def _after_ms(value: bytes | None) -> int | None:
    if value is not None and value.isdigit() and len(value) <= _TEXT_LENGTH_MAX:
        return int(value)
    return duration_ms(_text(value))
