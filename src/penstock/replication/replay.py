"""Reads records back out of committed batches, for state machines that live on a replica."""

from penstock.model.ids import Offset
from penstock.records.batch import decode_records, parse_header
from penstock.records.record import Record


def decode_committed(data: bytes, offset: Offset) -> tuple[list[Record], Offset]:
    """The data records at or after `offset` in a run of whole batches, and the offset after it."""
    view = memoryview(data)
    records: list[Record] = []
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        if not header.is_control:
            batch = view[position : position + header.size]
            records.extend(record for record in decode_records(batch) if record.offset >= offset)
        position += header.size
        offset = Offset(header.next_offset)
    return records, offset
