"""Raft's messages as bytes. A batch is sent as it is in memory, and a large one is kept where it
arrived if the memory there is its own; any other is copied on arrival.

Sender and receiver are not written: they are the two ends of the connection, so nobody can speak
for somebody else. What a message brings is checked before the core sees it: every batch must be
whole and intact and fit its entry.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.model.ids import LogEnd, LogIndex, ReplicaId, Term
from penstock.net.peer_buffer import LARGE_FRAME_BYTES_MIN
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
from penstock.records.batch import ATTRIBUTES_POSITION, parse_header, stored_crc
from penstock.records.errors import CorruptBatch
from penstock.replication.entry_codec import decode_membership, encode_membership
from penstock.replication.peer_frames import (
    SEALED_BYTES_MIN,
    DecodeError,
    FrameReader,
    FrameWriter,
)

RAFT_KIND_MAX: Final = 31

_PRE: Final = 1
_TRANSFER: Final = 2
_GRANTED: Final = 2

_ONE: Final = Struct(">Q")
_TWO: Final = Struct(">QQ")
_THREE: Final = Struct(">QQQ")
_FOUR: Final = Struct(">QQQQ")
_VOTE: Final = Struct(">QQQQQB")
_VOTE_ANSWER: Final = Struct(">QQQQQB")
_APPEND: Final = Struct(">QQQQ")
# Kind, term, last index, span; then the length of the payload, and the payload.
_ENTRY: Final = Struct(">bQQQ")
_COUNT: Final = Struct(">I")
_ENTRY_SIZE_MIN: Final = _ENTRY.size + _COUNT.size

_DATA: Final = EntryKind.DATA
_GAP: Final = EntryKind.GAP
_MEMBERSHIP: Final = EntryKind.MEMBERSHIP
_EMPTY_KINDS: Final = frozenset({EntryKind.NEW_TERM, EntryKind.GAP})


def write_message(writer: FrameWriter, name: bytes, message: Message) -> None:
    """`name` is the group's, in 20 bytes."""
    kind, write = _WRITERS[type(message)]
    writer.write(bytes((kind,)) + name)
    write(writer, message)


def read_message(kind: int, reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> Message:
    """What follows kind and name; raises DecodeError."""
    read = _READERS.get(kind)
    if read is None:
        raise DecodeError(f"there is no message of kind {kind}")
    return read(reader, sender, to)


# Votes


def _write_vote_request(writer: FrameWriter, message: VoteRequest) -> None:
    flags = (_PRE if message.pre else 0) | (_TRANSFER if message.transfer else 0)
    writer.write(
        _VOTE.pack(
            message.term, message.last_index, message.last_term, *message.accepted_end, flags
        )
    )


def _read_vote_request(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> VoteRequest:
    term, last_index, last_term, accepted_term, accepted_index, flags = reader.unpack(_VOTE)
    return VoteRequest(
        sender,
        to,
        Term(term),
        LogIndex(last_index),
        Term(last_term),
        bool(flags & _PRE),
        bool(flags & _TRANSFER),
        LogEnd(accepted_term, accepted_index),
    )


def _write_vote_response(writer: FrameWriter, message: VoteResponse) -> None:
    flags = (_PRE if message.pre else 0) | (_GRANTED if message.granted else 0)
    writer.write(_VOTE_ANSWER.pack(message.term, *message.log_end, *message.lost_end, flags))


def _read_vote_response(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> VoteResponse:
    term, end_term, end_index, lost_term, lost_index, flags = reader.unpack(_VOTE_ANSWER)
    return VoteResponse(
        sender,
        to,
        Term(term),
        bool(flags & _PRE),
        bool(flags & _GRANTED),
        LogEnd(end_term, end_index),
        LogEnd(lost_term, lost_index),
    )


# Appends


def _write_append(writer: FrameWriter, message: AppendRequest) -> None:
    entries = message.entries
    writer.write(
        _APPEND.pack(
            message.term, message.previous_index, message.previous_term, message.commit_index
        )
        + _COUNT.pack(len(entries))
    )
    for entry in entries:
        writer.write(_ENTRY.pack(entry.kind.value, entry.term, entry.index, entry.span))
        payload = _payload_bytes(entry)
        if entry.kind is _DATA and len(payload) >= SEALED_BYTES_MIN:
            writer.write_sealed(payload, ATTRIBUTES_POSITION, stored_crc(payload))
        else:
            writer.write_bytes(payload)


def _payload_bytes(entry: Entry) -> bytes | bytearray | memoryview:
    payload = entry.payload
    if entry.kind is _MEMBERSHIP:
        assert isinstance(payload, Membership)
        return encode_membership(payload)
    if entry.kind in _EMPTY_KINDS:
        return b""
    assert isinstance(payload, (bytes, bytearray, memoryview))
    return payload


def _read_append(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> AppendRequest:
    term, previous_index, previous_term, commit_index = reader.unpack(_APPEND)
    count = reader.count(_ENTRY_SIZE_MIN)
    entries = []
    index = previous_index
    for _ in range(count):
        entry = _read_entry(reader)
        if entry.index != index + entry.span:
            raise DecodeError(f"entry {entry.index} of span {entry.span} does not follow {index}")
        index = entry.index
        entries.append(entry)
    return AppendRequest(
        sender,
        to,
        Term(term),
        LogIndex(previous_index),
        Term(previous_term),
        tuple(entries),
        LogIndex(commit_index),
    )


def _read_entry(reader: FrameReader) -> Entry:
    kind_number, term, index, span = reader.unpack(_ENTRY)
    payload = reader.read_bytes()
    kind = _KINDS.get(kind_number)
    if kind is None:
        raise DecodeError(f"there is no entry of kind {kind_number}")
    if kind is _DATA:
        _check_batch(reader, payload, term, span)
        # What is read-only stays as it is; the memory of small frames is used again at once.
        may_stay = payload.readonly and len(payload) >= LARGE_FRAME_BYTES_MIN
        batch = payload if may_stay else bytes(payload)
        return Entry(LogIndex(index), Term(term), kind, batch, len(payload), span)
    if kind is not _GAP and span != 1:
        raise DecodeError(f"an entry of kind {kind.name} that covers {span} indices")
    if span < 1 or (kind in _EMPTY_KINDS and payload):
        raise DecodeError(f"an entry of kind {kind.name} can't be like that")
    return Entry(LogIndex(index), Term(term), kind, _own_payload(kind, payload), 0, span)


def _own_payload(kind: EntryKind, payload: memoryview) -> object:
    if kind in _EMPTY_KINDS:
        return None
    if kind is _MEMBERSHIP:
        return decode_membership(payload)
    return bytes(payload)


def _check_batch(reader: FrameReader, batch: memoryview, term: int, span: int) -> None:
    """Bits may flip on the way, or in the memory of the node that sent it."""
    try:
        header = parse_header(batch)
    except CorruptBatch as damage:
        raise DecodeError(f"a batch is damaged: {damage}") from None
    is_whole = header.size == len(batch)
    if not is_whole or not reader.is_sealed(batch, ATTRIBUTES_POSITION, header.crc):
        raise DecodeError("a batch is damaged: its length or its checksum does not match")
    if header.is_own or header.last_offset_delta + 1 != span or header.leader_epoch != term:
        raise DecodeError(
            f"a batch of term {header.leader_epoch} with the last offset delta "
            f"{header.last_offset_delta} can't be an entry of term {term} and span {span}"
        )


def _write_append_response(writer: FrameWriter, message: AppendResponse) -> None:
    writer.write(_THREE.pack(message.term, message.match_index, message.commit_index))


def _read_append_response(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> AppendResponse:
    term, match_index, commit_index = reader.unpack(_THREE)
    return AppendResponse(sender, to, Term(term), LogIndex(match_index), LogIndex(commit_index))


def _write_rejection(writer: FrameWriter, message: AppendRejection) -> None:
    writer.write(
        _FOUR.pack(message.term, message.previous_index, message.hint_index, message.hint_term)
    )


def _read_rejection(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> AppendRejection:
    term, previous_index, hint_index, hint_term = reader.unpack(_FOUR)
    return AppendRejection(
        sender, to, Term(term), LogIndex(previous_index), LogIndex(hint_index), Term(hint_term)
    )


def _write_commit(writer: FrameWriter, message: CommitNotice) -> None:
    writer.write(_TWO.pack(message.term, message.commit_index))


def _read_commit(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> CommitNotice:
    term, commit_index = reader.unpack(_TWO)
    return CommitNotice(sender, to, Term(term), LogIndex(commit_index))


# Heartbeats of one group


def _write_heartbeat(writer: FrameWriter, message: Heartbeat | HeartbeatResponse) -> None:
    writer.write(_THREE.pack(message.term, message.commit_index, message.read_round))


def _read_heartbeat(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> Heartbeat:
    term, commit_index, read_round = reader.unpack(_THREE)
    return Heartbeat(sender, to, Term(term), LogIndex(commit_index), read_round)


def _read_heartbeat_response(
    reader: FrameReader, sender: ReplicaId, to: ReplicaId
) -> HeartbeatResponse:
    term, commit_index, read_round = reader.unpack(_THREE)
    return HeartbeatResponse(sender, to, Term(term), LogIndex(commit_index), read_round)


# Snapshots


def _write_snapshot(writer: FrameWriter, message: InstallSnapshot) -> None:
    snapshot = message.snapshot
    payload = snapshot.payload
    assert isinstance(payload, (bytes, bytearray, memoryview))
    writer.write(_THREE.pack(message.term, snapshot.index, snapshot.term))
    writer.write_bytes(encode_membership(snapshot.membership))
    writer.write_bytes(payload)


def _read_snapshot(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> InstallSnapshot:
    term, index, snapshot_term = reader.unpack(_THREE)
    membership = decode_membership(reader.read_bytes())
    payload = bytes(reader.read_bytes())
    snapshot = Snapshot(LogIndex(index), Term(snapshot_term), membership, payload, len(payload))
    return InstallSnapshot(sender, to, Term(term), snapshot)


# Those that say only their term


def _write_term(writer: FrameWriter, message: TimeoutNow | StaleTerm) -> None:
    writer.write(_ONE.pack(message.term))


def _read_timeout_now(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> TimeoutNow:
    return TimeoutNow(sender, to, Term(reader.unpack(_ONE)[0]))


def _read_stale_term(reader: FrameReader, sender: ReplicaId, to: ReplicaId) -> StaleTerm:
    return StaleTerm(sender, to, Term(reader.unpack(_ONE)[0]))


class _Codec(NamedTuple):
    kind: int
    type: type[Message]
    write: Callable[[FrameWriter, Any], None]
    read: Callable[[FrameReader, ReplicaId, ReplicaId], Message]


_CODECS: Final = (
    _Codec(1, VoteRequest, _write_vote_request, _read_vote_request),
    _Codec(2, VoteResponse, _write_vote_response, _read_vote_response),
    _Codec(3, AppendRequest, _write_append, _read_append),
    _Codec(4, AppendResponse, _write_append_response, _read_append_response),
    _Codec(5, AppendRejection, _write_rejection, _read_rejection),
    _Codec(6, CommitNotice, _write_commit, _read_commit),
    _Codec(7, Heartbeat, _write_heartbeat, _read_heartbeat),
    _Codec(8, HeartbeatResponse, _write_heartbeat, _read_heartbeat_response),
    _Codec(9, InstallSnapshot, _write_snapshot, _read_snapshot),
    _Codec(10, TimeoutNow, _write_term, _read_timeout_now),
    _Codec(11, StaleTerm, _write_term, _read_stale_term),
)
_WRITERS: Final = {codec.type: (codec.kind, codec.write) for codec in _CODECS}
_READERS: Final = {codec.kind: codec.read for codec in _CODECS}
_KINDS: Final = {kind.value: kind for kind in EntryKind}
