"""Walks the batches of a segment file: headers alone, or whole batches, in flat memory."""

from collections.abc import Iterator
from typing import Protocol

from penstock.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    parse_header,
)

_CHUNK_BYTES = 1024 * 1024
_HEADERS_CHUNK_BYTES = 16 * 1024
# Above this size it is cheaper to hop from header to header than to read what is between.
_HOP_BYTES_MIN = 2 * 1024


class BadBatch(Exception):
    """No valid batch at this position of the file; the caller knows whether that is damage."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(f"byte {position}: {detail}")
        self.position = position
        self.detail = detail


class Readable(Protocol):
    def pread(self, length: int, position: int) -> bytes: ...


def read_headers(file: Readable, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header from `position`, where a batch begins, to `end`."""
    chunk, chunk_start = b"", position
    length = _HEADERS_CHUNK_BYTES
    while position < end:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            chunk, chunk_start = file.pread(min(length, end - position), position), position
        header = _parse(chunk, position - chunk_start, position, end)
        yield position, header
        position += header.size
        length = HEADER_SIZE if header.size >= _HOP_BYTES_MIN else _HEADERS_CHUNK_BYTES


def read_batches(
    file: Readable, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Each batch with its bytes, its CRC checked."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        start = position - chunk_start
        if start + HEADER_SIZE > len(chunk):
            chunk, chunk_start = _read_chunk(file, position, _CHUNK_BYTES, end), position
            start = 0
        header = _parse(chunk, start, position, end)
        if start + header.size > len(chunk):
            length = max(_CHUNK_BYTES, header.size)
            chunk, chunk_start = _read_chunk(file, position, length, end), position
            start = 0
        if not crc_matches(chunk, start, header):
            raise BadBatch(position, "the checksum does not match")
        yield position, header, chunk[start : start + header.size]
        position += header.size


def _read_chunk(file: Readable, position: int, length: int, end: int) -> memoryview:
    return memoryview(file.pread(min(length, end - position), position))


def _parse(chunk: bytes | memoryview, start: int, position: int, end: int) -> BatchHeader:
    try:
        header = parse_header(chunk, start)
    except CorruptBatch as error:
        raise BadBatch(position, str(error)) from None
    if position + header.size > end:
        raise BadBatch(position, f"the batch takes {header.size} bytes, {end - position} are left")
    return header
