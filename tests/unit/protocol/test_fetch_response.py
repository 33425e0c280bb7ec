"""Proves that a fetch response with file ranges has the bytes of one with records in memory."""

import pytest

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.fetch_response import encode_fetch_response
from penstock.protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

CONTENT = b"0123456789" * 20


class FileInMemory:
    def __init__(self) -> None:
        self.pins = 0

    def fileno(self) -> int:
        return -1

    def pread(self, length: int, position: int) -> bytes:
        return CONTENT[position : position + length]

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


def response_with(*records: bytes | FileRange | None) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=10,
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2) if index else None,
            aborted_transactions=None,
            records=value,
        )
        for index, value in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def joined(parts: list[bytes | FileRange]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRange) else part for part in parts)


@pytest.mark.parametrize("version", range(19))
def test_file_ranges_stand_where_their_bytes_would(version: int) -> None:
    file = FileInMemory()
    ranges = (FileRange(file, 3, 5), FileRange(file, 0, 150))
    response = response_with(ranges[0], b"in memory", None, ranges[1], b"")
    parts = encode_fetch_response(response, version)
    in_memory = response_with(CONTENT[3:8], b"in memory", None, CONTENT[:150], b"")
    assert joined(parts) == encode(in_memory, version)
    assert [part for part in parts if isinstance(part, FileRange)] == list(ranges)
    assert file.pins == 2


def test_a_response_without_file_ranges_is_one_part() -> None:
    (part,) = encode_fetch_response(response_with(b"x", None), 12)
    assert isinstance(part, bytes)
    decoded = decode(FetchResponse, 12, part)
    assert [p.records for p in decoded.responses[0].partitions] == [b"x", None]


def test_views_of_memory_are_joined_too() -> None:
    response = response_with(None)
    response.responses[0].partitions[0].records = memoryview(bytearray(b"xy"))
    (part,) = encode_fetch_response(response, 11)
    assert isinstance(part, bytes)
    assert part.endswith(b"\0\0\0\x02xy")
