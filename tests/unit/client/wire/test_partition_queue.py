"""The books of one partition: order is kept, and its numbers have neither gaps nor doubles."""

import pytest

from penstock.client.wire.errors import GaveUp
from penstock.client.wire.partition_queue import IN_FLIGHT_MAX, Outgoing, PartitionQueue
from penstock.client.wire.patience import Patience
from penstock.client.wire.stamping import NOBODY, Identity
from penstock.records.batch import check_batch
from tests.unit.client.wire.fake_broker import at, batch

IDENTITY = Identity(41, 0)


def make_queue(
    count: int = 0, *, identity: Identity = IDENTITY, limit_s: float = 60.0
) -> tuple[PartitionQueue, list[Outgoing]]:
    queue = PartitionQueue(at(), identity, Patience("writing", lambda: limit_s))
    batches = [Outgoing(at(), bytearray(batch(b"a", b"b")), 2) for _ in range(count)]
    for one in batches:
        queue.add(one)
    return queue, batches


def send(queue: PartitionQueue) -> list[Outgoing]:
    """Everything that may go now."""
    sent = []
    while (one := queue.next_to_send(0.0)) is not None:
        queue.sent(one)
        sent.append(one)
    return sent


def test_one_goes_first_and_five_follow_once_it_is_acknowledged() -> None:
    queue, batches = make_queue(10)
    assert send(queue) == batches[:1]
    queue.acknowledged(batches[0])
    assert send(queue) == batches[1 : 1 + IN_FLIGHT_MAX]
    queue.acknowledged(batches[1])
    assert send(queue) == batches[6:7]


def test_records_are_numbered_without_gaps_and_the_checksum_is_right() -> None:
    queue, batches = make_queue(3)
    for one in batches:
        send(queue)
        queue.acknowledged(one)
    headers = [check_batch(one.data) for one in batches]
    assert [one.base_sequence for one in headers] == [0, 2, 4]
    assert {(one.producer_id, one.producer_epoch) for one in headers} == {IDENTITY}


def test_without_an_identity_one_is_under_way_and_none_has_a_number() -> None:
    queue, batches = make_queue(3, identity=NOBODY)
    for one in batches:
        assert send(queue) == [one]
        queue.acknowledged(one)
        assert check_batch(one.data)[9:12] == (-1, -1, -1)
    assert len(queue) == 0


def test_after_a_failure_all_are_sent_again_in_order_once_nothing_is_under_way() -> None:
    queue, batches = make_queue(6)
    send(queue)
    queue.acknowledged(batches[0])
    send(queue)
    queue.failed(batches[1])
    for one in batches[2:5]:
        assert send(queue) == []
        queue.failed(one)
    assert send(queue) == []
    queue.failed(batches[5])
    assert send(queue) == batches[1:2]
    queue.acknowledged(batches[1])
    assert send(queue) == batches[2:]


def test_those_behind_a_failure_may_have_been_taken() -> None:
    queue, batches = make_queue(4)
    send(queue)
    queue.acknowledged(batches[0])
    send(queue)
    queue.failed(batches[1])
    queue.acknowledged(batches[2])
    queue.acknowledged(batches[3])
    assert send(queue) == [batches[1]]
    queue.acknowledged(batches[1])
    assert len(queue) == 0


def test_a_new_epoch_waits_for_what_is_under_way_and_counts_from_nought() -> None:
    queue, batches = make_queue(4)
    send(queue)
    queue.acknowledged(batches[0])
    send(queue)
    queue.failed(batches[1])
    queue.begin_epoch()
    assert queue.identity == IDENTITY
    queue.failed(batches[2])
    queue.failed(batches[3])
    assert queue.identity == Identity(41, 1)
    late = Outgoing(at(), bytearray(batch(b"c")), 1)
    queue.add(late)
    # The leader has not seen this epoch: one goes first again.
    assert send(queue) == [batches[1]]
    queue.acknowledged(batches[1])
    assert send(queue) == [batches[2], batches[3], late]
    headers = [check_batch(one.data) for one in (*batches[1:], late)]
    assert [(one.producer_epoch, one.base_sequence) for one in headers] == [
        (1, 0),
        (1, 2),
        (1, 4),
        (1, 6),
    ]


def test_numbers_start_again_after_the_largest() -> None:
    queue, _ = make_queue()
    queue._sequence = 2**31 - 2
    ones = [Outgoing(at(), bytearray(batch(b"a", b"b")), 2) for _ in range(2)]
    for one in ones:
        queue.add(one)
    assert [one.sequence for one in ones] == [2**31 - 2, 0]


def test_a_hold_lasts_for_its_time_and_ends_when_patience_does() -> None:
    queue, batches = make_queue(1)
    queue.hold("no leader", now=100.0)
    assert queue.is_held(100.0)
    assert queue.next_to_send(100.0) is None
    assert queue.next_to_send(101.0) is batches[0]
    impatient, _ = make_queue(1, limit_s=-1.0)
    with pytest.raises(GaveUp, match="Gave up on writing after -1 s without progress: no leader"):
        impatient.hold("no leader", now=0.0)
