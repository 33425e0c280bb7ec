"""Finds the records of batches that belong to a trace which somebody wants recorded."""

from collections.abc import Iterator
from typing import Final

from penstock.model.trace_context import TRACEPARENT, TraceContext, context_of
from penstock.records.batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, decode_records, parse_header
from penstock.records.compression import Codec
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record

_TRACEPARENT: Final = TRACEPARENT.encode()


def traced_in(batches: bytes, last: int) -> Iterator[tuple[int, TraceContext]]:
    """Offsets up to `last`, each with its context. A batch that can't have the header is not
    decoded, and neither is one that is cut off or of an old format, which has no headers."""
    data = memoryview(batches)
    position = 0
    while position + HEADER_SIZE <= len(data) and data[position + MAGIC_POSITION] == MAGIC:
        header = parse_header(data, position)
        end = position + header.size
        if header.base_offset > last or end > len(data):
            return
        is_plain = header.codec is Codec.NONE
        if not is_plain or batches.find(_TRACEPARENT, position, end) >= 0:
            for record in _records_of(data[position:end], header.is_control):
                context = context_of(record.headers)
                if context is not None and context.is_sampled and record.offset <= last:
                    yield record.offset, context
        position = end


def _records_of(batch: memoryview, is_control: bool) -> list[Record]:
    try:
        return [] if is_control else list(decode_records(batch))
    except CorruptBatch:
        # A producer may send anything as records.
        return []
