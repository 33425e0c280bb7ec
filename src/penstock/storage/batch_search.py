"""Finds the next valid batch behind a bad one: it tells damage from a torn end."""

import re

from penstock.records.batch import (
    HEADER_SIZE,
    MAGIC,
    CorruptBatch,
    crc_matches,
    parse_header,
)
from penstock.storage.batch_reader import Readable

_WINDOW_BYTES = 4 * 1024 * 1024
# A batch further away than this is taken for noise.
_OFFSET_DISTANCE_MAX = 2**40


def find_valid_batch(file: Readable, start: int, end: int, offset_min: int) -> int | None:
    """The first position from `start` on where a batch with a right CRC begins.

    Only batches from `offset_min` on count: older bytes may lie in records by chance or by design.
    """
    pattern = _header_pattern(offset_min)
    position = start
    while position + HEADER_SIZE <= end:
        window = file.pread(min(_WINDOW_BYTES, end - position), position)
        for match in pattern.finditer(window):
            if _is_valid(file, window, match.start(), position, end, offset_min):
                return position + match.start()
        # The next window repeats what could be the begin of a header.
        position += max(1, len(window) - HEADER_SIZE + 1)
    return None


def _header_pattern(offset_min: int) -> re.Pattern[bytes]:
    """What the bytes of a header look like, so that the search itself runs at the speed of C.

    The upper bytes of a plausible offset, the magic byte, and the unused half of the attributes;
    as a look-ahead, because true and false headers may overlap.
    """
    top = offset_min >> 40
    tops = b"|".join(re.escape(number.to_bytes(3, "big")) for number in (top, top + 1))
    return re.compile(
        rb"(?s)(?=(?:" + tops + rb").{13}" + re.escape(bytes([MAGIC])) + rb".{4}\x00)"
    )


def _is_valid(
    file: Readable, window: bytes, start: int, window_position: int, end: int, offset_min: int
) -> bool:
    try:
        header = parse_header(window, start)
    except CorruptBatch:
        return False
    is_plausible = (
        0 <= header.base_offset - offset_min < _OFFSET_DISTANCE_MAX
        and header.record_count <= header.last_offset_delta + 1
        and window_position + start + header.size <= end
    )
    # The CRC of an implausible candidate is spared: noise can announce any length.
    return is_plausible and crc_matches(file.pread(header.size, window_position + start), 0, header)
