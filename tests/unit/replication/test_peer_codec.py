"""Proves that Raft's messages survive the way, and that nothing damaged gets to the core."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import BrokerId, DirectoryId, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind, Snapshot
from penstock.raft.membership import Membership
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    AppendResponse,
    CommitNotice,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    StaleTerm,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.records.batch import build_batch
from penstock.records.checksum import crc32c
from penstock.records.own_entries import OwnKind, build_own
from penstock.records.record import Record
from penstock.replication.peer_codec import read_message, write_message
from penstock.replication.peer_frames import (
    INLINE_BYTES_MAX,
    KEY_SIZE,
    SEALED_BYTES_MIN,
    DecodeError,
    FrameReader,
    FrameWriter,
    GroupNames,
)
from tests.unit.replication.peers_kit import group, replica_id

SENDER, TO = replica_id(1), replica_id(2)
NAMES = GroupNames()

numbers = st.integers(0, 2**64 - 1)
terms = numbers.map(Term)
indices = numbers.map(LogIndex)
replicas = st.builds(
    ReplicaId, st.integers(0, 9).map(BrokerId), st.text("abc", min_size=1).map(DirectoryId)
)


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    voters = draw(st.frozensets(replicas, min_size=1, max_size=5))
    return Membership(voters, draw(st.frozensets(replicas, max_size=3)) - voters)


def batch_of(count: int, size: int, term: int) -> bytes:
    record = Record(offset=0, timestamp_ms=5, key=None, value=bytes(size), headers=())
    return build_batch([record] * count, term=term)


@st.composite
def entries(draw: st.DrawFn, previous_index: int) -> tuple[Entry, ...]:
    made: list[Entry] = []
    index = previous_index
    for kind in draw(st.lists(st.sampled_from(list(EntryKind)), max_size=5)):
        term = draw(st.integers(0, 2**31 - 1))
        payload: object = None
        size, span = 0, 1
        if kind is EntryKind.DATA:
            span = draw(st.integers(1, 5))
            payload = batch_of(span, draw(st.sampled_from([0, 10, INLINE_BYTES_MAX])), term)
            size = len(payload)
        elif kind is EntryKind.GAP:
            span = draw(st.integers(1, 2**40))
        elif kind is EntryKind.MEMBERSHIP:
            payload = draw(memberships())
        elif kind is EntryKind.LOG_START:
            payload = draw(st.binary(min_size=8, max_size=8))
        index += span
        made.append(Entry(LogIndex(index), Term(term), kind, payload, size, span))
    return tuple(made)


@st.composite
def appends(draw: st.DrawFn) -> AppendRequest:
    previous_index = draw(st.integers(0, 2**60))
    return AppendRequest(
        SENDER,
        TO,
        draw(terms),
        LogIndex(previous_index),
        draw(terms),
        draw(entries(previous_index)),
        draw(indices),
    )


snapshots = st.builds(
    lambda index, term, membership, payload: Snapshot(
        index, term, membership, payload, len(payload)
    ),
    indices,
    terms,
    memberships(),
    st.binary(max_size=5000),
)
ends = (st.just(SENDER), st.just(TO), terms)
log_ends = st.builds(LogEnd, st.integers(0, 2**62), st.integers(0, 2**62))
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(VoteRequest, *ends, indices, terms, st.booleans(), st.booleans(), log_ends),
    st.builds(VoteResponse, *ends, st.booleans(), st.booleans(), log_ends, log_ends),
    appends(),
    st.builds(AppendResponse, *ends, indices, indices),
    st.builds(AppendRejection, *ends, indices, indices, terms),
    st.builds(CommitNotice, *ends, indices),
    st.builds(Heartbeat, *ends, indices, numbers),
    st.builds(HeartbeatResponse, *ends, indices, numbers),
    st.builds(InstallSnapshot, *ends, snapshots),
    st.builds(TimeoutNow, *ends),
    st.builds(StaleTerm, *ends),
)


def frame_of(*sent: Message) -> bytes:
    writer = FrameWriter()
    for message in sent:
        write_message(writer, NAMES.name(group(3)), message)
    return b"".join(writer.take())


def read_all(frame: bytes) -> list[Message]:
    reader = FrameReader(memoryview(frame))
    names, found = [], []
    while reader.has_more:
        kind = reader.byte()
        names.append(bytes(reader.take(KEY_SIZE)))
        found.append(read_message(kind, reader, SENDER, TO))
    if not reader.is_verified:
        reader.verify()
    assert all(NAMES.id(name) == group(3) for name in names)
    return found


@given(sent=st.lists(messages, max_size=4))
def test_messages_arrive_as_they_were_sent(sent: list[Message]) -> None:
    found = read_all(frame_of(*sent))
    assert found == sent
    assert [type(message) for message in found] == [type(message) for message in sent]


@given(data=st.binary(max_size=300), kind=st.integers(0, 40))
def test_any_bytes_are_a_message_or_a_decode_error(data: bytes, kind: int) -> None:
    writer = FrameWriter()
    writer.write(data)
    reader = FrameReader(memoryview(b"".join(writer.take())))
    try:
        read_message(kind, reader, SENDER, TO)
    except DecodeError:
        return
    assert kind in range(1, 12)


@given(sent=messages, cut=st.integers(0, 10_000))
def test_a_frame_that_was_cut_is_noticed(sent: Message, cut: int) -> None:
    frame = frame_of(sent)
    with pytest.raises(DecodeError):
        read_all(frame[: cut % len(frame)])


@given(sent=messages, bit=st.integers(0, 2**40))
def test_a_flipped_bit_is_noticed(sent: Message, bit: int) -> None:
    frame = bytearray(frame_of(sent))
    position = bit % (len(frame) * 8)
    frame[position // 8] ^= 1 << position % 8
    with pytest.raises(DecodeError):
        read_all(bytes(frame))


def append(batch: bytes, *, term: int = 4, span: int = 1) -> AppendRequest:
    entry = Entry(LogIndex(10 + span), Term(term), EntryKind.DATA, batch, len(batch), span)
    return AppendRequest(SENDER, TO, Term(5), LogIndex(10), Term(3), (entry,), LogIndex(9))


def test_a_batch_that_was_damaged_before_it_was_sent_is_noticed() -> None:
    """The frame's checksum is right then; the batch's own is not."""
    good = batch_of(1, 100, 4)
    assert read_all(frame_of(append(good))) == [append(good)]
    for position in (100, 17, 16, 11):
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(DecodeError):
            read_all(frame_of(append(bytes(bad))))
    with pytest.raises(DecodeError):
        read_all(frame_of(append(good + b"x")))


def test_a_batch_must_fit_its_entry() -> None:
    good = batch_of(2, 10, 4)
    assert read_all(frame_of(append(good, span=2)))
    for bad in (append(good, span=3), append(good, span=2, term=5), append(good, span=0)):
        with pytest.raises(DecodeError):
            read_all(frame_of(bad))
    own = build_own(OwnKind.NEW_TERM, index=11, term=4, offset=7)
    with pytest.raises(DecodeError):
        read_all(frame_of(append(own, span=0)))


def test_entries_must_follow_each_other() -> None:
    first = Entry(LogIndex(11), Term(4), EntryKind.NEW_TERM, None, 0)
    second = Entry(LogIndex(13), Term(4), EntryKind.NEW_TERM, None, 0)
    request = AppendRequest(
        SENDER, TO, Term(5), LogIndex(10), Term(3), (first, second), LogIndex(9)
    )
    with pytest.raises(DecodeError, match="does not follow"):
        read_all(frame_of(request))


def test_a_large_batch_is_not_copied_on_its_way_out() -> None:
    batch = batch_of(1, 100_000, 4)
    writer = FrameWriter()
    write_message(writer, NAMES.name(group(3)), append(batch))
    assert any(piece is batch for piece in writer.take())
    assert writer.size == 0


def large_frame() -> tuple[list[Message], bytes]:
    """Two appends of large batches, among messages and batches that are small."""
    large = batch_of(1, 2 * SEALED_BYTES_MIN, 4)
    sent: list[Message] = [
        append(large),
        CommitNotice(SENDER, TO, Term(5), LogIndex(3)),
        append(batch_of(1, 300, 4)),
        append(batch_of(1, SEALED_BYTES_MIN + 1, 4)),
        CommitNotice(SENDER, TO, Term(5), LogIndex(4)),
    ]
    return sent, frame_of(*sent)


def test_the_checksum_of_a_frame_is_that_of_its_bytes_however_it_was_come_by() -> None:
    sent, frame = large_frame()
    assert int.from_bytes(frame[:4], "big") == crc32c(frame[4:])
    assert read_all(frame) == sent


@given(bit=st.integers(0, 2**40), near_start=st.booleans())
def test_a_flipped_bit_in_a_large_frame_is_noticed(bit: int, near_start: bool) -> None:
    frame = bytearray(large_frame()[1])
    position = bit % (2_000 if near_start else len(frame) * 8)
    frame[position // 8] ^= 1 << position % 8
    with pytest.raises(DecodeError):
        read_all(bytes(frame))


def test_a_large_batch_that_was_damaged_before_it_was_sent_is_noticed() -> None:
    good = batch_of(1, 2 * SEALED_BYTES_MIN, 4)
    for position in (SEALED_BYTES_MIN, 100, 17, 16, 11):
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(DecodeError):
            read_all(frame_of(append(bytes(bad))))


def test_a_large_batch_stays_where_it_arrived_only_if_that_memory_is_its_own() -> None:
    batch = batch_of(1, 2 * SEALED_BYTES_MIN, 4)
    arrived = bytearray(frame_of(append(batch)))
    for frame, stays in ((memoryview(arrived).toreadonly(), True), (memoryview(arrived), False)):
        reader = FrameReader(frame)
        kind, _ = reader.byte(), reader.take(KEY_SIZE)
        message = read_message(kind, reader, SENDER, TO)
        reader.verify()
        assert isinstance(message, AppendRequest)
        payload = message.entries[0].payload
        assert payload == batch
        assert (isinstance(payload, memoryview) and payload.obj is arrived) == stays


def test_group_names_start_anew_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.replication.peer_frames.KEYS_REMEMBERED_MAX", 3)
    names = GroupNames()
    made = [names.name(group(number)) for number in range(10)]
    assert len(names._ids) <= 3
    assert [names.id(name) for name in made] == [group(number) for number in range(10)]
