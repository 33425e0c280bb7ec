"""Proves that memberships, snapshots and entries survive the way into bytes and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, Offset, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import Membership
from penstock.records.batch import parse_header
from penstock.records.own_entries import OwnKind, parse_own
from penstock.replication.entry_codec import (
    DecodeError,
    SnapshotContent,
    batches_of,
    decode_log_start,
    decode_membership,
    decode_snapshot,
    encode_log_start,
    encode_membership,
    entry_of,
)
from penstock.storage.log import LogEntry

from .rig import batch

replicas = st.builds(
    ReplicaId,
    st.integers(0, 2**31 - 1).map(BrokerId),
    st.text(min_size=1, max_size=22).map(DirectoryId),
)


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    members = sorted(draw(st.sets(replicas, min_size=1, max_size=8)))
    voters = draw(st.integers(1, len(members)))
    return Membership(frozenset(members[:voters]), frozenset(members[voters:]))


@given(memberships())
def test_a_membership_comes_back_as_it_was(membership: Membership) -> None:
    assert decode_membership(encode_membership(membership)) == membership


@given(st.binary(max_size=60))
def test_any_bytes_are_a_membership_or_refused(data: bytes) -> None:
    try:
        membership = decode_membership(data)
    except DecodeError:
        return
    assert membership.voters


@given(memberships(), st.data())
def test_a_membership_that_is_cut_short_is_refused(
    membership: Membership, data: st.DataObject
) -> None:
    encoded = encode_membership(membership)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        decode_membership(encoded[:cut])
    with pytest.raises(DecodeError):
        decode_membership(encoded + b"x")


def test_snapshots_and_log_starts_come_back() -> None:
    content = SnapshotContent(Offset(12), b"producers")
    assert decode_snapshot(content.encode()) == content
    assert decode_log_start(encode_log_start(Offset(7))) == 7
    for bad in (b"", b"1234567"):
        with pytest.raises(DecodeError):
            decode_snapshot(bad)
        with pytest.raises(DecodeError):
            decode_log_start(bad)


def entry(kind: EntryKind, payload: object, index: int = 10, span: int = 1) -> Entry:
    return Entry(LogIndex(index), Term(3), kind, payload, 0, span)


def test_own_entries_and_gaps_become_batches_and_come_back() -> None:
    membership = Membership(frozenset({ReplicaId(BrokerId(1), DirectoryId("a"))}))
    for kind, payload in (
        (EntryKind.NEW_TERM, None),
        (EntryKind.MEMBERSHIP, membership),
        (EntryKind.LOG_START, encode_log_start(Offset(4))),
    ):
        given_entry = entry(kind, payload)
        (written,) = batches_of(given_entry, Offset(8))
        header = parse_header(bytes(written))
        assert (header.base_offset, header.next_offset, header.leader_epoch) == (8, 8, 3)
        assert parse_own(bytes(written)).kind == OwnKind(kind.value)
        assert entry_of(LogEntry(10, 10, 3, kind.value, bytes(written))) == given_entry
    (gap,) = batches_of(entry(EntryKind.GAP, None, 14, 5), Offset(8))
    header = parse_header(bytes(gap))
    assert (header.base_offset, header.next_offset, header.record_count) == (8, 13, 0)
    assert entry_of(LogEntry(10, 14, 3, -1, b"")) == entry(EntryKind.GAP, None, 14, 5)


def test_data_is_its_own_batch() -> None:
    data = batch(b"a", b"b")
    assert list(batches_of(entry(EntryKind.DATA, data, 11, 2), Offset(8))) == [data]
    found = entry_of(LogEntry(10, 11, 3, 0, data))
    assert (found.payload, found.size_bytes, found.span) == (data, len(data), 2)
