"""What a consumer group (KIP-848) knows of a member that still speaks the classic protocol.

Such a member joins and syncs as it always did. What it said in its last join is stored with it, so
that the group can become a classic one again: Kafka's `classicMemberMetadata`, a tagged field of
the member's record.
"""

import struct
from typing import NamedTuple

from penstock.groups.layout import (
    Reader,
    write_compact_array,
    write_compact_bytes,
    write_compact_string,
    write_tagged_fields,
)

CLASSIC_MEMBER_TAG = 0

_INT32 = struct.Struct(">i")
# Stands before a structure that could be null, too.
_PRESENT = b"\x01"


class MemberProtocol(NamedTuple):
    """One way of assigning partitions that a member can take part in, and its data for it."""

    name: str
    metadata: bytes


class ClassicMember(NamedTuple):
    session_timeout_ms: int
    # In the member's order of preference, never empty.
    protocols: tuple[MemberProtocol, ...]

    @property
    def metadata(self) -> bytes:
        """What it subscribes to, which is the same in all protocols."""
        return self.protocols[0].metadata


def write_classic_member(classic: ClassicMember | None) -> dict[int, bytes]:
    """As a tagged field; none for a member of the new protocol."""
    if classic is None:
        return {}
    end = write_tagged_fields({})
    protocols = write_compact_array(
        write_compact_string(name) + write_compact_bytes(metadata) + end
        for name, metadata in classic.protocols
    )
    timeout = _INT32.pack(classic.session_timeout_ms)
    return {CLASSIC_MEMBER_TAG: _PRESENT + timeout + protocols + end}


def read_classic_member(fields: dict[int, bytes]) -> ClassicMember | None:
    data = fields.get(CLASSIC_MEMBER_TAG)
    if data is None:
        return None
    reader = Reader(data)
    reader.expect_flexible()
    if reader.int8() < 1:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append(MemberProtocol(reader.string(), reader.bytes_()))
        reader.end_of_struct()
    return ClassicMember(session_timeout_ms, tuple(protocols)) if protocols else None
