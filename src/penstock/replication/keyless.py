"""Finds the records of a batch that have no key, as fast as Python can.

A compacted topic looks at every record that it takes, on the event loop. So the loop below reads
just what compaction will rely on later: where records, keys and values end, and that offsets count
up by one. A batch that passes here never looks like damage when it is compacted.
"""

from penstock.records.errors import CorruptBatch
from penstock.records.varint import read_varint


def keyless_records(payload: bytes, count: int) -> list[int]:
    """The indexes of the records without a key; raises CorruptBatch if the records are bad."""
    try:
        return _scan(payload, count)
    except IndexError:
        raise CorruptBatch("the records end in the middle of one") from None


def _scan(payload: bytes, count: int) -> list[int]:
    """Lengths are zigzag varints: below 128 they are one byte, and an odd one is negative."""
    keyless = []
    position, size = 0, len(payload)
    for index in range(count):
        length = payload[position]
        if length < 128 and not length & 1:
            length, position = length >> 1, position + 1
        else:
            length, position = read_varint(payload, position)
        end = position + length
        if length < 0 or end > size:
            raise CorruptBatch(f"record {index} runs past the end of the records")
        # The attributes are one byte that nobody uses; the timestamp may be any number.
        position += 1
        if payload[position] < 128:
            position += 1
        else:
            _, position = read_varint(payload, position)
        offset_delta, position = read_varint(payload, position)
        if offset_delta != index:
            raise CorruptBatch(f"record {index} says that it is record {offset_delta}")
        for is_key in (True, False):
            length = payload[position]
            if length < 128:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = read_varint(payload, position)
            if length < 0:
                if is_key:
                    keyless.append(index)
            else:
                position += length
        if position > end:
            raise CorruptBatch(f"a key or value runs past the end of record {index}")
        position = end
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow the last record")
    return keyless
