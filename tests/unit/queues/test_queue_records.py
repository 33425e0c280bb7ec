"""What is stored of queues: it comes back as it was, and bad bytes are only ever bad bytes."""

from random import Random
from uuid import UUID

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, GroupId, MemberId, TopicId
from penstock.queues import calls
from penstock.queues.commands import Change, Death, Range, RecordState
from penstock.queues.decisions import Open, QueueSummary, Write
from penstock.queues.layout import QueueKey, Reader
from penstock.queues.letters import (
    Copies,
    Letter,
    LetterState,
    Plan,
    Redriven,
    Sender,
)
from penstock.queues.records import (
    QueueChanged,
    QueueOpened,
    QueueRecord,
    QueueRecordCodec,
    QueueRemoved,
    QueueStored,
)
from penstock.records.errors import CorruptBatch

KEY = QueueKey(GroupId("wörkers"), TopicId(UUID(int=7)), 3)
LEASE = Range(4, 9, RecordState.LEASED, 2, MemberId("m"), 30_000)
WHOLE = Change(
    start=4,
    ranges=(
        LEASE,
        Range(10, 10, RecordState.ACKED, 1),
        Range(11, 2**40, RecordState.LEASED, 1, MemberId("n"), 1),
        Range(2**40 + 1, 2**40 + 1, RecordState.DEAD, 5),
    ),
)
DLQ = TopicId(UUID(int=8))
LETTERS = LetterState(
    sender=Sender(DLQ, 1, 2**40, 3, 2**31 - 1),
    plan=Plan((Letter(7, 5, Death.TRIED_TOO_OFTEN, 2), Letter(9, 1, Death.REJECTED, 0)), 1),
    sent_count=12,
    redriven_count=3,
    redriven=(Redriven(DLQ, 0, 17), Redriven(DLQ, 1, 2**40)),
    copier=Sender(KEY.topic_id, 3, COPIERS_FROM + 7),
    copies=Copies(DLQ, 1, (4, 8)),
    copiers=(COPIERS_FROM + 6, COPIERS_FROM + 7),
)
DYING = Range(1, 2, RecordState.DYING, 5, death=Death.REJECTED, redrives=1)
RECORDS: list[QueueRecord] = [
    QueueStored(key=KEY, whole=Change(start=4, ranges=(DYING, LEASE), letters=LETTERS)),
    QueueChanged(key=KEY, version=2, changes=(Change(start=4, letters=LetterState()),)),
    QueueStored(key=KEY, term=5, opening=6, state_epoch=7, version=8, whole=WHOLE),
    QueueStored(key=KEY, whole=Change(start=-1)),
    QueueOpened(key=KEY, term=5, opening=6),
    QueueChanged(key=KEY, version=9, changes=(WHOLE, Change(start=11))),
    QueueRemoved(key=KEY),
]
CODEC = QueueRecordCodec()


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_comes_back_as_it_was(record: QueueRecord) -> None:
    assert CODEC.decode(*CODEC.encode(record)) == record


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        kind = random.randrange(3)
        at = random.randrange(len(changed) + 1)
        if kind == 0 and at < len(changed):
            changed[at] = random.randrange(256)
        elif kind == 1:
            del changed[at:]
        else:
            changed[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(changed)


@pytest.mark.parametrize("record", RECORDS)
def test_bad_bytes_raise_only_what_says_so(record: QueueRecord) -> None:
    random = Random(1)
    key, value = CODEC.encode(record)
    for _ in range(5_000):
        bad_key = mutated(key, random)
        bad_value = None if value is None else mutated(value, random)
        for pair in ((bad_key, value), (key, bad_value)):
            try:
                CODEC.decode(*pair)
            except CorruptBatch:
                continue


def test_a_record_of_a_later_version_is_not_guessed_at() -> None:
    key, value = CODEC.encode(RECORDS[0])
    assert value is not None
    with pytest.raises(CorruptBatch, match="version 2"):
        CODEC.decode(key, b"\x02" + value[1:])


@pytest.mark.parametrize(
    "ranges",
    [
        (Range(5, 4, RecordState.ACKED, 1),),
        (Range(4, 9, RecordState.ACKED, 1), Range(9, 9, RecordState.ACKED, 2)),
    ],
)
def test_ranges_that_overlap_or_go_backwards_are_bad_bytes(ranges: tuple[Range, ...]) -> None:
    record = QueueStored(key=KEY, whole=Change(start=0, ranges=ranges))
    with pytest.raises(CorruptBatch):
        CODEC.decode(*CODEC.encode(record))


# Calls between brokers


def test_calls_come_back_as_they_were() -> None:
    opened = Open(key=KEY, term=3, opening=4)
    write = Write(
        key=KEY, term=3, opening=4, state_epoch=5, version=6, changes=(WHOLE,), is_whole=True
    )
    starts = {KEY: 5, KEY._replace(partition=4): -1}
    outcomes = {KEY: Refused(Reason.NON_EMPTY_GROUP, "why"), KEY._replace(partition=4): None}
    summaries = [
        QueueSummary(
            key=KEY,
            term=1,
            state_epoch=2,
            start=3,
            done_count=4,
            leased_count=5,
            waiting_count=6,
        )
    ]
    assert calls.decoded(calls.encode_open(opened), calls.read_open) == opened
    assert calls.decoded(calls.encode_write(write), calls.read_write) == write
    assert calls.decoded(calls.encode_starts(starts), calls.read_starts) == starts
    assert calls.decoded(calls.encode_keys(list(starts)), calls.read_keys) == list(starts)
    asked = calls.encode_read(KEY.group_id, None)
    assert calls.decoded(asked, calls.read_read) == (KEY.group_id, None)
    found = calls.decoded(calls.encode_outcomes(outcomes), calls.read_outcomes)
    assert {key: refused and refused.reason for key, refused in found.items()} == {
        KEY: Reason.NON_EMPTY_GROUP,
        KEY._replace(partition=4): None,
    }
    assert calls.decoded(calls.encode_summaries(summaries), calls.read_summaries) == summaries


def test_a_malformed_call_is_refused() -> None:
    random = Random(2)
    command = Write(key=KEY, term=3, opening=4, state_epoch=5, version=6, changes=(WHOLE,))
    data = calls.encode_write(command)
    reasons = [reason_of(mutated(data, random)) for _ in range(5_000)]
    assert set(reasons) == {None, Reason.INVALID_REQUEST}


def reason_of(data: bytes) -> Reason | None:
    try:
        calls.decoded(data, calls.read_write)
    except Refused as refused:
        return refused.reason
    return None


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    with pytest.raises(CorruptBatch, match="2147483647 items"):
        Reader(b"\x7f\xff\xff\xff").count()
