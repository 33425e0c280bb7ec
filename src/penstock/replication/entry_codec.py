"""How what Raft carries becomes bytes: memberships, snapshots, and entries as batches of a log.

A data entry is a record batch already. Raft's own entries and gaps have no bytes until they are
written; then they become batches without an offset, or empty ones (`records/own_entries`).
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, Offset, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import Membership
from penstock.records.own_entries import OwnKind, build_gaps, build_own, parse_own
from penstock.replication.batch_buffers import Batch
from penstock.storage.log import LogEntry

# No group comes near it: it only bounds what a damaged length can make us read.
MEMBERS_MAX = 10_000
MEMBERSHIPS_KEPT_MAX = 256

_COUNTS = struct.Struct(">HH")
_MEMBER = struct.Struct(">iB")
_OFFSET = struct.Struct(">Q")

DATA = EntryKind.DATA


class DecodeError(ValueError):
    """Bytes of a peer, or of a log, that are none of ours."""


# Memberships


def encode_membership(membership: Membership) -> bytes:
    """The same bytes for the same members, in whatever order they were named."""
    voters, learners = sorted(membership.voters), sorted(membership.learners)
    parts = [_COUNTS.pack(len(voters), len(learners))]
    for node, directory in (*voters, *learners):
        name = directory.encode()
        parts.append(_MEMBER.pack(node, len(name)) + name)
    return b"".join(parts)


def decode_membership(data: Batch, *, may_be_empty: bool = False) -> Membership:
    """Only a log that was made for a replica that came back knows of no voters at first."""
    membership = _decode_membership(bytes(data))
    if not membership.voters and not may_be_empty:
        raise DecodeError("a membership without voters")
    return membership


# The groups of a node have few memberships among them: after a start, thousands share one.
@lru_cache(maxsize=MEMBERSHIPS_KEPT_MAX)
def _decode_membership(data: bytes) -> Membership:
    try:
        voter_count, learner_count = _COUNTS.unpack_from(data)
        if voter_count + learner_count > MEMBERS_MAX:
            raise DecodeError(f"a group of {voter_count + learner_count} members")
        members, end = _decode_members(data, voter_count + learner_count)
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"not a membership: {error}") from None
    membership = Membership(frozenset(members[:voter_count]), frozenset(members[voter_count:]))
    if end != len(data) or len(membership.members) != voter_count + learner_count:
        raise DecodeError("a membership names a replica twice or does not end where it should")
    return membership


def _decode_members(data: bytes, count: int) -> tuple[list[ReplicaId], int]:
    members = []
    position = _COUNTS.size
    for _ in range(count):
        node, length = _MEMBER.unpack_from(data, position)
        position += _MEMBER.size
        name = data[position : position + length]
        if len(name) != length:
            raise DecodeError("a membership ends in the middle of a name")
        members.append(ReplicaId(BrokerId(node), DirectoryId(name.decode())))
        position += length
    return members, position


# Log starts, and snapshots for followers that are behind them


def encode_log_start(offset: Offset) -> bytes:
    return _OFFSET.pack(offset)


def decode_log_start(data: Batch) -> Offset:
    try:
        (offset,) = _OFFSET.unpack(data)
    except struct.error as error:
        raise DecodeError(f"not a log start: {error}") from None
    return Offset(offset)


class SnapshotContent(NamedTuple):
    """What a partition's snapshot holds beside index, term and membership; data follows it."""

    offset: Offset
    # Of all producers, as far as batches before `offset` tell.
    producers: bytes

    def encode(self) -> bytes:
        return _OFFSET.pack(self.offset) + self.producers


def decode_snapshot(data: Batch) -> SnapshotContent:
    if len(data) < _OFFSET.size:
        raise DecodeError("a snapshot that is too short")
    (offset,) = _OFFSET.unpack_from(data)
    return SnapshotContent(Offset(offset), bytes(data[_OFFSET.size :]))


# Entries


def batches_of(entry: Entry, offset: Offset) -> Iterator[Batch]:
    """What is written for an entry of a log whose next offset is `offset`."""
    match entry.kind:
        case EntryKind.DATA:
            assert isinstance(entry.payload, (bytes, bytearray, memoryview))
            yield entry.payload
        case EntryKind.GAP:
            yield from build_gaps(offset=offset, span=entry.span, term=entry.term)
        case _:
            yield build_own(
                OwnKind(entry.kind.value),
                index=entry.index,
                term=entry.term,
                offset=offset,
                payload=_own_payload(entry),
            )


def _own_payload(entry: Entry) -> bytes:
    if entry.kind is EntryKind.MEMBERSHIP:
        assert isinstance(entry.payload, Membership)
        return encode_membership(entry.payload)
    if entry.payload is None:
        return b""
    assert isinstance(entry.payload, (bytes, bytearray, memoryview))
    return bytes(entry.payload)


def entry_of(stored: LogEntry) -> Entry:
    """An entry as the core knows it, read back from the log."""
    kind = EntryKind(stored.kind)
    index, term = LogIndex(stored.index), Term(stored.term)
    span = stored.index - stored.first_index + 1
    if kind is DATA:
        return Entry(index, term, kind, stored.batch, len(stored.batch), span)
    payload: object = None
    if kind is EntryKind.MEMBERSHIP:
        payload = decode_membership(parse_own(stored.batch).payload)
    elif kind is EntryKind.LOG_START:
        payload = parse_own(stored.batch).payload
    return Entry(index, term, kind, payload, 0, span)
