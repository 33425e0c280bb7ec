"""The records inside a batch as they lie there: found, read, written, without decoding the rest."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from penstock.records.errors import CorruptBatch
from penstock.records.record import Headers
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


def pick_records(payload: bytes, count: int, deltas: Sequence[int]) -> list[bytes] | None:
    """Some records of a batch in which every offset has one, by their offsets from its first, in
    order. Steps over the others by their lengths, which takes a tenth of the time. None if an
    offset is not where it should be: then all have to be read. Raises CorruptBatch."""
    pieces: list[bytes] = []
    wanted = iter(deltas)
    next_one = next(wanted, -1)
    start = 0
    try:
        for delta in range(count):
            byte, begin = payload[start], start
            if byte < 0x80:
                start += 1 + (byte >> 1)
            elif payload[start + 1] < 0x80:
                start += 2 + ((byte & 0x7F | payload[start + 1] << 7) >> 1)
            else:
                length, start = read_varint(payload, start)
                start += max(0, length)
            if delta == next_one:
                raw = _scan_record(payload, begin)
                if raw.offset_delta != delta or raw.end != start:
                    return None
                pieces.append(payload[begin:start])
                next_one = next(wanted, -1)
    except IndexError:
        raise CorruptBatch("a record runs past the end of the records") from None
    if start != len(payload):
        raise CorruptBatch("the records do not end where the batch does")
    return pieces


# What somebody needs of a record who delivers it later, or in the order of its key: where it ends,
# its timestamp and offset from those of its batch, its key, and where the length of its value lies.
# The headers are behind that. A plain tuple, since this is made for every record of a queue.
Skimmed: TypeAlias = tuple[int, int, int, bytes | None, int]


def skim_records(payload: bytes, count: int, last_offset_delta: int) -> Iterator[Skimmed]:
    """Each record, without a look at its value and headers; raises CorruptBatch, also where their
    offsets do not grow or leave the batch."""
    start, size, delta_before = 0, len(payload), -1
    for _ in range(count):
        try:
            # Nearly all numbers take one byte, and lengths and offsets often two: read in place.
            byte = payload[start]
            position = start + 1
            if byte >= 0x80:
                more = payload[position]
                if more < 0x80:
                    byte, position = byte & 0x7F | more << 7, position + 1
                    length = (byte >> 1) ^ -(byte & 1)
                else:
                    length, position = read_varint(payload, start)
            else:
                length = (byte >> 1) ^ -(byte & 1)
            end = position + length
            byte = payload[position + 1]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = read_varint(payload, position + 1)
            byte = payload[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                more = payload[position + 1]
                if more < 0x80:
                    byte = byte & 0x7F | more << 7
                    offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
                else:
                    offset_delta, position = read_varint(payload, position)
            byte = payload[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(payload, position)
        except IndexError:
            raise CorruptBatch("a record runs past the end of the records") from None
        key = None
        if length >= 0:
            key = payload[position : position + length]
            position += length
        if not position < end <= size:
            raise CorruptBatch("a key or a record runs past its end")
        if not delta_before < offset_delta <= last_offset_delta:
            raise CorruptBatch(f"a record is {offset_delta} offsets after its batch's first")
        yield end, timestamp_delta, offset_delta, key, position
        start, delta_before = end, offset_delta
    if start != size:
        raise CorruptBatch(f"{size - start} bytes follow the last record")


def header_values(payload: bytes, value_at: int, end: int) -> dict[bytes, bytes | None]:
    """The headers of a record that was skimmed, of each name the last; raises CorruptBatch."""
    length, position = read_varint(payload, value_at)
    count, position = read_varint(payload, position + max(0, length))
    if count < 0 or count * 2 > end - position:
        raise CorruptBatch(f"a record can't hold {count} headers")
    headers: dict[bytes, bytes | None] = {}
    for _ in range(count):
        name, position = _read_nullable(payload, position, end)
        value, position = _read_nullable(payload, position, end)
        if name is not None:
            headers[name] = value
    return headers


def _read_nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptBatch("a field runs past the end of its record")
    return payload[position : position + length], position + length


def read_records(
    payload: bytes, count: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """Timestamp and offset of each record from those of its batch, its key, value and headers;
    raises CorruptBatch. For those who want all of each: a third of the time of finding them first
    and decoding them then."""
    start, size = 0, len(payload)
    for _ in range(count):
        try:
            # Nearly all numbers take one byte, and lengths often two: read in place.
            byte = payload[start]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), start + 1
            else:
                length, position = read_varint(payload, start)
            end = position + length
            byte = payload[position + 1]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = read_varint(payload, position + 1)
            byte = payload[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_varint(payload, position)
            byte = payload[position]
            if byte < 0x80:
                key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(payload, position)
            key = None
            if key_length >= 0:
                key = payload[position : position + key_length]
                position += key_length
            byte = payload[position]
            more = payload[position + 1] if byte >= 0x80 else 0
            if byte < 0x80:
                value_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif more < 0x80:
                byte = byte & 0x7F | more << 7
                value_length, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                value_length, position = read_varint(payload, position)
            value = None
            if value_length >= 0:
                value = payload[position : position + value_length]
                position += value_length
        except IndexError:
            raise CorruptBatch("a record runs past the end of the records") from None
        if length < 0 or not position < end <= size:
            raise CorruptBatch("a field or a record runs past its end")
        # A record without headers ends with the number 0.
        is_bare = position + 1 == end and not payload[position]
        headers = () if is_bare else _read_headers(payload, position, end)
        yield timestamp_delta, offset_delta, key, value, headers
        start = end
    if start != size:
        raise CorruptBatch(f"{size - start} bytes follow the last record")


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
