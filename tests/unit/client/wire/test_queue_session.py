"""Share sessions as values, and the records in what a broker sends."""

import pytest

from penstock.client.wire.queue_leases import Ack, AckType, SharePlace
from penstock.client.wire.queue_records import leased_records
from penstock.client.wire.queue_session import EPOCH_MAX, FINAL_EPOCH, ShareSession
from penstock.protocol.kafka.messages.share_fetch import (
    RECORD_LIMIT,
    AcquiredRecords,
    ShareFetchRequest,
)
from penstock.records.batch import build_batch
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from tests.unit.client.wire.fake_broker import TOPIC_ID, batch

ZERO, ONE, TWO = (SharePlace(TOPIC_ID, partition) for partition in range(3))


def asked(session: ShareSession, *places: SharePlace) -> ShareFetchRequest:
    request = session.fetch(places, records_max=3, bytes_max=1_000, wait_ms=50)
    session.fetched(places)
    return request


def named(request: ShareFetchRequest) -> tuple[list[int], list[int]]:
    """Partitions that are new to the broker, and those that it shall forget."""
    return (
        [one.partition_index for topic in request.topics for one in topic.partitions],
        [one for topic in request.forgotten_topics_data for one in topic.partitions],
    )


def test_a_session_names_what_has_changed() -> None:
    session = ShareSession("g", "m")
    assert not session.is_open
    first = asked(session, ONE, ZERO)
    assert (first.share_session_epoch, named(first)) == (0, ([0, 1], []))
    assert (first.max_records, first.batch_size, first.share_acquire_mode) == (3, 3, RECORD_LIMIT)
    assert session.is_open
    second = asked(session, ZERO, ONE)
    assert (second.share_session_epoch, named(second)) == (1, ([], []))
    third = asked(session, TWO, ONE)
    assert (third.share_session_epoch, named(third)) == (2, ([2], [0]))


def test_a_session_that_is_over_begins_again_with_everything() -> None:
    session = ShareSession("g", "m")
    asked(session, ZERO)
    session.reset()
    again = asked(session, ZERO)
    assert (again.share_session_epoch, named(again)) == (0, ([0], []))


def test_epochs_go_round_without_the_one_that_begins_a_session() -> None:
    session = ShareSession("g", "m")
    session.epoch = EPOCH_MAX
    session.acknowledged()
    assert session.epoch == 1
    assert session.close().share_session_epoch == FINAL_EPOCH


def test_neighbours_of_a_kind_are_acknowledged_as_one_range() -> None:
    session = ShareSession("g", "m")
    accepted = [Ack(offset, offset, AckType.ACCEPT) for offset in (1, 2, 3, 6)]
    released = [Ack(offset, offset, AckType.RELEASE) for offset in (7, 8)]
    request = session.acknowledge({ONE: [*accepted, *released], ZERO: accepted[:1]})
    assert not request.is_renew_ack
    (topic,) = request.topics
    found = {
        one.partition_index: [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in one.acknowledgement_batches
        ]
        for one in topic.partitions
    }
    assert found == {0: [(1, 1, [1])], 1: [(1, 3, [1]), (6, 6, [1]), (7, 8, [2])]}
    renewed = session.acknowledge({ONE: [Ack(1, 1, AckType.RENEW)]})
    assert renewed.is_renew_ack


def acquired(first: int, last: int, attempt: int = 1) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=attempt)


def found_in(data: bytes, *ranges: AcquiredRecords) -> tuple[list[tuple[int, int]], object]:
    found = leased_records(memoryview(data), ranges)
    return [(record.offset, attempt) for record, attempt in found.records], found.gaps


def test_only_what_is_leased_is_taken_out_of_the_batches() -> None:
    data = batch(b"a", b"b", b"c", base_offset=10) + batch(b"d", b"e", base_offset=13)
    leased = found_in(data, acquired(11, 11, 2), acquired(13, 14))
    assert leased == ([(11, 2), (13, 1), (14, 1)], [])


def test_leased_offsets_without_a_record_are_gaps() -> None:
    """Compaction leaves some, and control batches are not records."""
    kept = [Record(offset=offset, timestamp_ms=1, value=b"v") for offset in (2, 5)]
    data = compacted(kept)
    assert found_in(data, acquired(0, 3), acquired(5, 9, 2)) == (
        [(2, 1), (5, 2)],
        [(0, 1), (3, 3), (6, 9)],
    )
    assert found_in(b"", acquired(0, 3), acquired(7, 8)) == ([], [(0, 3), (7, 8)])
    nothing = leased_records(None, [acquired(4, 4)])
    assert (nothing.records, nothing.gaps) == ([], [(4, 4)])
    assert leased_records(None, []).gaps == []


def compacted(records: list[Record]) -> bytes:
    """A batch per record, as far apart as they are."""
    return b"".join(
        build_batch([Record(timestamp_ms=1, value=one.value)], base_offset=one.offset)
        for one in records
    )


def test_what_makes_no_sense_is_not_taken_for_records() -> None:
    good = batch(b"a", b"b")
    for bad in (good[:-1], good[:-1] + b"x", good[:30], good + good):
        with pytest.raises(CorruptBatch):
            leased_records(memoryview(bad), [acquired(0, 9)])
