"""Messages from before record batches (magic 0 and 1), which old logs of Kafka still hold."""

import struct
from typing import NamedTuple

from penstock.records.batch import BatchHeader, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.legacy import upgrade

_PREFIX = struct.Struct(">qiIbb")
_OVERHEAD = 12
_LOG_APPEND_TIME_BIT = 0x08

NO_TIMESTAMP_TYPE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1


class Upgraded(NamedTuple):
    """One message, or the messages compressed inside of one, as a batch."""

    batch: memoryview
    header: BatchHeader
    timestamp_type: int
    # How many bytes the message took.
    size: int


def upgrade_next(view: memoryview) -> Upgraded:
    """The message that begins the buffer, as a batch at the message's offsets.

    A compressed message carries the offset of the last one inside of it.
    """
    try:
        offset, length, _, magic, attributes = _PREFIX.unpack_from(view)
    except struct.error:
        raise CorruptBatch(f"a message is cut off after {len(view)} bytes") from None
    size = _OVERHEAD + length
    if length < 0 or size > len(view):
        raise CorruptBatch(f"a message of {length} bytes does not fit")
    batch = memoryview(upgrade(view[:size]))
    header = parse_header(batch)
    base_offset = offset - header.last_offset_delta
    if base_offset < 0:
        raise CorruptBatch(f"{header.record_count} messages can't end at offset {offset}")
    return Upgraded(
        batch, header._replace(base_offset=base_offset), _timestamp_type(magic, attributes), size
    )


def _timestamp_type(magic: int, attributes: int) -> int:
    if magic == 0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if attributes & _LOG_APPEND_TIME_BIT else CREATE_TIME
