"""Reads and writes the parts of what queues store and of what their brokers ask each other.

The layout is our own. Ranges are of one size, so that a change of thousands is packed and unpacked
without a step per field.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.commands import Change, Death, Range, RecordState
from penstock.queues.letters import Copies, Letter, LetterState, Plan, Redriven, Sender
from penstock.records.errors import CorruptBatch

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
# First and last offset, state, attempts, duration of the lease, number of the member, when it is
# due, why it dies, how often it was brought back.
_RANGE: Final = Struct(">qqBIIiqBH")
_CHANGE_HEAD: Final = Struct(">qii")
# Offset, attempts, why it died, how often it was brought back.
_LETTER: Final = Struct(">qIBH")
# Topic, partition, producer id, epoch, sequence.
_SENDER: Final = Struct(">16siqhi")
# Topic, partition, offset.
_REDRIVEN: Final = Struct(">16siq")
_COUNTS: Final = Struct(">qq")
_NO_MEMBER: Final = -1
_STATES: Final = {int(state): state for state in RecordState if state is not RecordState.BLOCKED}
_DEATHS: Final = {int(death): death for death in Death}


class QueueKey(NamedTuple):
    """A share partition: a partition of a topic under a share group."""

    group_id: GroupId
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic_id} in group {self.group_id}"


def pack_text(text: str) -> bytes:
    data = text.encode()
    return INT32.pack(len(data)) + data


def pack_key(key: QueueKey) -> bytes:
    return pack_text(key.group_id) + key.topic_id.bytes + INT32.pack(key.partition)


def pack_change(change: Change) -> bytes:
    """Each member is named once, however many leases it has."""
    members: dict[MemberId, int] = {}
    ranges = [
        _RANGE.pack(
            first,
            last,
            state,
            attempts,
            lease_ms,
            _NO_MEMBER if member_id is None else members.setdefault(member_id, len(members)),
            due_ms,
            death,
            redrives,
        )
        for (
            first,
            last,
            state,
            attempts,
            member_id,
            lease_ms,
            due_ms,
            death,
            redrives,
        ) in change.ranges
    ]
    head = _CHANGE_HEAD.pack(change.start, len(members), len(ranges))
    letters = b"\0" if change.letters is None else b"\1" + pack_letters(change.letters)
    return b"".join((head, *map(pack_text, members), *ranges, letters))


def pack_changes(changes: Sequence[Change]) -> bytes:
    return INT32.pack(len(changes)) + b"".join(map(pack_change, changes))


def pack_list(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return INT32.pack(len(parts)) + b"".join(parts)


def pack_letters(state: LetterState) -> bytes:
    plan, copies = state.plan, state.copies
    parts = [_COUNTS.pack(state.sent_count, state.redriven_count)]
    parts += map(_pack_sender, (state.sender, state.copier))
    parts.append(pack_list(_REDRIVEN.pack(each[0].bytes, *each[1:]) for each in state.redriven))
    parts.append(pack_list(map(INT64.pack, state.copiers)))
    parts.append(INT32.pack(0 if plan is None else plan.count))
    if plan is not None:
        parts.append(pack_list(_LETTER.pack(*each) for each in plan.letters))
    parts.append(pack_list(map(INT64.pack, () if copies is None else copies.offsets)))
    if copies is not None:
        parts.append(copies.topic_id.bytes + INT32.pack(copies.partition))
    return b"".join(parts)


def _pack_sender(sender: Sender | None) -> bytes:
    senders = () if sender is None else (sender,)
    return pack_list(_SENDER.pack(each[0].bytes, *each[1:]) for each in senders)


class Reader:
    """Walks through bytes; whatever does not fit raises CorruptBatch."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def text(self) -> str:
        try:
            return self._take(self.int32()).decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"the text of a queue is not UTF-8: {error}") from error

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def bytes_(self) -> bytes:
        return self._take(self.int32())

    def count(self) -> int:
        """Of what follows. Each item takes at least a byte, so a count beyond the rest is a lie."""
        return self._checked(self.int32(), 1)

    def key(self) -> QueueKey:
        return QueueKey(GroupId(self.text()), TopicId(self.uuid()), self.int32())

    def change(self) -> Change:
        start, member_count, range_count = _CHANGE_HEAD.unpack(self._take(_CHANGE_HEAD.size))
        members = [MemberId(self.text()) for _ in range(self._checked(member_count, INT32.size))]
        data = self._take(self._checked(range_count, _RANGE.size) * _RANGE.size)
        ranges = tuple(_range(fields, members) for fields in _RANGE.iter_unpack(data))
        _check_order(ranges)
        return Change(
            start=start, ranges=ranges, letters=read_letters(self) if self.int8() else None
        )

    def changes(self) -> tuple[Change, ...]:
        return tuple(self.change() for _ in range(self.count()))

    def end(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise CorruptBatch(f"{left} bytes follow the end of what a queue stores")

    def fields(self, layout: Struct) -> tuple[Any, ...]:
        return layout.unpack(self._take(layout.size))

    def has_more(self) -> bool:
        return self._position < len(self._data)

    def _checked(self, count: int, size_min: int) -> int:
        if not 0 <= count * size_min <= len(self._data) - self._position:
            raise CorruptBatch(f"what a queue stores announces {count} items")
        return count

    def _number(self, kind: Struct) -> int:
        number: int = kind.unpack(self._take(kind.size))[0]
        return number

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptBatch(f"what a queue stores ends at {len(self._data)} bytes, not at {end}")
        data = self._data[self._position : end]
        self._position = end
        return data


def read_letters(reader: Reader) -> LetterState:
    sent_count, redriven_count = reader.fields(_COUNTS)
    senders, copiers = _read_senders(reader), _read_senders(reader)
    redriven = tuple(
        Redriven(TopicId(UUID(bytes=name)), *rest)
        for name, *rest in (reader.fields(_REDRIVEN) for _ in range(reader.count()))
    )
    producer_ids = tuple(reader.int64() for _ in range(reader.count()))
    return LetterState(
        copiers=producer_ids,
        sender=senders[0] if senders else None,
        plan=_read_plan(reader),
        sent_count=sent_count,
        redriven_count=redriven_count,
        redriven=redriven,
        copier=copiers[0] if copiers else None,
        copies=_read_copies(reader),
    )


def _read_senders(reader: Reader) -> list[Sender]:
    found = [reader.fields(_SENDER) for _ in range(reader.count())]
    return [Sender(TopicId(UUID(bytes=name)), *rest) for name, *rest in found]


def _read_plan(reader: Reader) -> Plan | None:
    count = reader.int32()
    if not count:
        return None
    rows = [reader.fields(_LETTER) for _ in range(reader.count())]
    if not 0 < count <= len(rows) or any(row[2] not in _DEATHS for row in rows):
        raise CorruptBatch(f"a plan of {count} letters has {len(rows)}, or one without a reason")
    letters = (Letter(offset, tried, _DEATHS[why], times) for offset, tried, why, times in rows)
    return Plan(tuple(letters), count)


def _read_copies(reader: Reader) -> Copies | None:
    offsets = tuple(reader.int64() for _ in range(reader.count()))
    return Copies(TopicId(reader.uuid()), reader.int32(), offsets) if offsets else None


def _range(fields: tuple[int, ...], members: Sequence[MemberId]) -> Range:
    first, last, state, attempts, lease_ms, member, due_ms, death, redrives = fields
    if state not in _STATES or death not in _DEATHS or not _NO_MEMBER <= member < len(members):
        raise CorruptBatch(f"a range of a queue has state {state}, {death} and member {member}")
    is_leased = state == RecordState.LEASED
    if is_leased != (member != _NO_MEMBER):
        raise CorruptBatch("a lease must have a member, and only a lease has one")
    if (due_ms != 0) != (state == RecordState.DELAYED):
        raise CorruptBatch("delayed records must have a time, and only they have one")
    if (death != 0) != (state == RecordState.DYING):
        raise CorruptBatch("dying records must have a reason, and only they have one")
    member_id = members[member] if is_leased else None
    return Range(
        first,
        # Of a single record one number is kept, not two: there may be a million.
        first if last == first else last,
        _STATES[state],
        attempts,
        member_id,
        lease_ms,
        due_ms,
        _DEATHS[death],
        redrives,
    )


def _check_order(ranges: Sequence[Range]) -> None:
    end = 0
    for item in ranges:
        if not end <= item.first <= item.last:
            raise CorruptBatch(f"a range of a queue is {item.first} to {item.last}, after {end}")
        end = item.last + 1
