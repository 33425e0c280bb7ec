"""The records inside a batch as they lie there: found, read, written, without decoding the rest."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from penstock.records.varint import append_varint, read_varint


class RawRecord(NamedTuple):
    """Where the parts of one record lie in the decompressed payload."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    # Everything from the offset delta on stays as it is when the base timestamp moves.
    offset_delta_position: int
    # None where key or value is null.
    key: bytes | None
    value_position: int
    value_length: int

    @property
    def is_tombstone(self) -> bool:
        return self.value_length < 0


def scan_records(payload: bytes, count: int) -> Iterator[RawRecord]:
    """Each of the `count` records; raises CorruptBatch if they don't fill the payload exactly."""
    position = 0
    for _ in range(count):
        raw = _scan_record(payload, position)
        yield raw
        position = raw[1]
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes follow the last record")


def _scan_record(payload: bytes, start: int) -> RawRecord:
    # Compaction comes here for every record, and nearly all numbers take one byte, or two for
    # lengths: those are read in place, which halves the time.
    try:
        byte = payload[start]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), start + 1
        else:
            length, position = read_varint(payload, start)
        end = position + length
        # The attributes byte of a record is unused.
        position += 1
        byte = payload[position]
        if byte < 0x80:
            timestamp_delta, delta_position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            timestamp_delta, delta_position = read_varint(payload, position)
        byte = payload[delta_position]
        if byte < 0x80:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), delta_position + 1
        else:
            offset_delta, position = read_varint(payload, delta_position)
    except IndexError:
        raise CorruptBatch("a record runs past the end of the records") from None
    if length < 0 or end > len(payload):
        raise CorruptBatch("a record runs past the end of the records")
    key, position = _read_nullable(payload, position, end)
    value_length, position = read_varint(payload, position)
    if position + value_length > end or position > end:
        raise CorruptBatch("a value runs past the end of its record")
    return RawRecord(
        start, end, timestamp_delta, offset_delta, delta_position, key, position, value_length
    )


def _read_nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptBatch("a field runs past the end of its record")
    return payload[position : position + length], position + length


def decode_record(payload: bytes, raw: RawRecord, *, offset: int, timestamp_ms: int) -> Record:
    value_end = raw.value_position + max(0, raw.value_length)
    value = None if raw.value_length < 0 else payload[raw.value_position : value_end]
    return Record(
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=raw.key,
        value=value,
        headers=_read_headers(payload, value_end, raw.end),
    )


def _read_headers(payload: bytes, position: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    count, position = read_varint(payload, position)
    # A header takes two bytes at least, which bounds the count before anything is built.
    if count < 0 or count * 2 > end - position:
        raise CorruptBatch(f"a record can't hold {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_nullable(payload, position, end)
        value, position = _read_nullable(payload, position, end)
        if name is None:
            raise CorruptBatch("a header has no name")
        headers.append((_decode_name(name), value))
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the last header of a record")
    return tuple(headers)


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CorruptBatch("the name of a header is not UTF-8") from None


def append_shifted(out: bytearray, payload: bytes, raw: RawRecord, timestamp_delta: int) -> None:
    """The same record under another base timestamp, which changes its timestamp delta alone."""
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    body += payload[raw.offset_delta_position : raw.end]
    append_varint(out, len(body))
    out += body
