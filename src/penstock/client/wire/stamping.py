"""Makes a batch ready to be sent: the producer's identity goes in, the checksum is made right."""

import struct
from typing import NamedTuple

from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_OFFSET_OVERHEAD,
    MAGIC,
    parse_header,
)
from penstock.records.checksum import crc32c

PRODUCER_POSITION = 43
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")


class Identity(NamedTuple):
    """Who sends: broker and producer recognise by it what was sent twice."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)
NO_SEQUENCE = -1


def check_batch_shape(batch: bytearray, count: int) -> None:
    """The caller's part: one whole batch of `count` records, numbered from 0 on."""
    header = parse_header(batch)
    assert header.magic == MAGIC
    assert len(batch) >= HEADER_SIZE
    assert header.batch_length == len(batch) - LENGTH_OFFSET_OVERHEAD, "not one whole batch"
    assert header.base_offset == 0, "offsets are the broker's to give"
    assert header.record_count == header.last_offset_delta + 1 == count, "the count is wrong"


def stamp_producer(batch: bytearray, identity: Identity, sequence: int) -> None:
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, *identity, sequence)
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
