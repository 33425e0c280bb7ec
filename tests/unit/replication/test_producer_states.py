"""Proves that sequences, duplicates and fencing follow Kafka's rules, against a plain model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.records.batch import BatchHeader
from penstock.replication.producer_states import AWAITED_S, SEQUENCE_MAX, ProducerStates
from tests.unit.clocks import ManualClock

CLOCK = ManualClock()


def header(
    producer_id: int = 7, epoch: int = 0, sequence: int = 0, count: int = 1, offset: int = 0
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        leader_epoch=1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def take(states: ProducerStates, batch: BatchHeader, offset: int = 0) -> None:
    assert states.check(batch, CLOCK) is None
    states.record(batch, offset, now_ms=0)


def refusal(states: ProducerStates, batch: BatchHeader, clock: Clock = CLOCK) -> Reason:
    with pytest.raises(Refused) as caught:
        states.check(batch, clock)
    return caught.value.reason


def test_an_unknown_producer_may_start_anywhere() -> None:
    take(ProducerStates(), header(sequence=41))


def test_sequences_must_go_on_without_a_gap() -> None:
    states = ProducerStates()
    take(states, header(sequence=0, count=3))
    assert refusal(states, header(sequence=4)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(states, header(sequence=3))


def test_sequences_wrap_after_the_largest_one() -> None:
    states = ProducerStates()
    take(states, header(sequence=SEQUENCE_MAX - 1, count=4))
    take(states, header(sequence=2))
    late = ProducerStates()
    take(late, header(sequence=SEQUENCE_MAX))
    take(late, header(sequence=0))


def test_one_of_the_last_five_batches_is_answered_as_a_duplicate() -> None:
    states = ProducerStates()
    for number in range(6):
        take(states, header(sequence=number), offset=100 + number)
    duplicate = states.check(header(sequence=1), CLOCK)
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.last_offset) == (101, 101)
    assert refusal(states, header(sequence=0)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_an_earlier_one_is_no_duplicate() -> None:
    states = ProducerStates()
    take(states, header(sequence=0, count=3))
    assert refusal(states, header(sequence=0, count=2)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_fences_the_old_one_and_starts_at_zero() -> None:
    states = ProducerStates()
    take(states, header(epoch=1, sequence=0))
    assert refusal(states, header(epoch=2, sequence=1)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(states, header(epoch=2, sequence=0))
    assert refusal(states, header(epoch=1, sequence=1)) is Reason.INVALID_PRODUCER_EPOCH


def test_a_producer_expires_only_when_it_was_not_seen_for_long() -> None:
    states = ProducerStates()
    states.record(header(producer_id=1), 0, now_ms=0)
    states.record(header(producer_id=2), 1, now_ms=500)
    states.record(header(producer_id=1, sequence=1), 2, now_ms=900)
    states.expire(now_ms=1_500, expiry_ms=1_000, clock=CLOCK)
    assert [producer_id for producer_id, _ in states.active()] == [1]


def test_a_snapshot_restores_the_same_state() -> None:
    states = ProducerStates()
    for number in range(8):
        take(states, header(producer_id=number % 3, sequence=number // 3), offset=number)
    other = ProducerStates()
    other.restore(states.snapshot())
    assert dict(other.active()) == dict(states.active())
    assert other.snapshot() == states.snapshot()


def test_nothing_at_all_is_the_snapshot_of_an_empty_log() -> None:
    states = ProducerStates()
    states.restore(b"")
    assert len(states) == 0


def test_a_taken_back_first_batch_must_come_again_before_later_ones() -> None:
    """Otherwise batches that were in flight behind a failed write would overtake it."""
    states = ProducerStates()
    first, second = header(sequence=0), header(sequence=1)
    undo = [states.record(first, 0, 0), states.record(second, 1, 0)]
    for before in reversed(undo):
        states.take_back(7, before, CLOCK)
    assert len(states) == 0
    assert refusal(states, header(sequence=2)) is Reason.NOT_LEADER_OR_FOLLOWER
    assert refusal(states, second) is Reason.NOT_LEADER_OR_FOLLOWER
    take(states, first)
    take(states, second)


def test_what_follows_batches_that_were_taken_back_shares_their_fate() -> None:
    """They are not a gap: their producer was told to send them again, and will."""
    states = ProducerStates()
    take(states, header(sequence=0))
    undo = [states.record(header(sequence=number), number, 0) for number in (1, 2)]
    for before in reversed(undo):
        states.take_back(7, before, CLOCK)
    assert refusal(states, header(sequence=3)) is Reason.NOT_LEADER_OR_FOLLOWER
    assert refusal(states, header(sequence=2)) is Reason.NOT_LEADER_OR_FOLLOWER
    take(states, header(sequence=1))
    take(states, header(sequence=2))
    assert refusal(states, header(sequence=4)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


def await_again(states: ProducerStates, batch: BatchHeader) -> None:
    states.await_again(batch, Reason.THROTTLED, CLOCK)


def test_a_refused_first_batch_must_come_again_before_later_ones() -> None:
    states = ProducerStates()
    await_again(states, header(sequence=5))
    await_again(states, header(sequence=6))
    assert refusal(states, header(sequence=6)) is Reason.THROTTLED
    take(states, header(sequence=5))


@pytest.mark.parametrize("first", [3, SEQUENCE_MAX - 1, SEQUENCE_MAX])
def test_what_follows_a_refused_batch_is_refused_for_the_same_reason(first: int) -> None:
    states = ProducerStates()
    take(states, header(sequence=first - 1))
    refused = [header(sequence=(first + number) & SEQUENCE_MAX) for number in range(3)]
    for batch in refused:
        await_again(states, batch)
    assert refusal(states, refused[2]) is Reason.THROTTLED
    assert refusal(states, refused[1]) is Reason.THROTTLED
    for batch in refused:
        take(states, batch)


def test_the_first_refused_batch_is_awaited_in_whatever_order_they_were_refused() -> None:
    states = ProducerStates()
    take(states, header(sequence=0))
    for number in (3, 1, 2):
        await_again(states, header(sequence=number))
    assert refusal(states, header(sequence=2)) is Reason.THROTTLED
    take(states, header(sequence=1))


def test_a_repetition_that_was_refused_is_not_awaited() -> None:
    states = ProducerStates()
    for number in range(3):
        take(states, header(sequence=number))
    await_again(states, header(sequence=1))
    await_again(states, header(sequence=3))
    assert refusal(states, header(sequence=4)) is Reason.THROTTLED
    take(states, header(sequence=3))


def test_what_follows_the_refused_first_batch_of_an_epoch_is_refused_for_the_same_reason() -> None:
    states = ProducerStates()
    take(states, header(sequence=0))
    await_again(states, header(epoch=1, sequence=0))
    assert refusal(states, header(epoch=1, sequence=1)) is Reason.THROTTLED
    take(states, header(epoch=1, sequence=0))
    take(states, header(epoch=1, sequence=1))


def test_a_batch_is_awaited_until_it_comes_itself() -> None:
    """A follower may refuse it, then hear of those before it, and then lead."""
    states = ProducerStates()
    take(states, header(sequence=0))
    await_again(states, header(sequence=3))
    await_again(states, header(epoch=1, sequence=0))
    await_again(states, header(sequence=3))
    for number in (1, 2):
        take(states, header(sequence=number))
    assert refusal(states, header(sequence=4)) is Reason.THROTTLED
    take(states, header(sequence=3))
    assert refusal(states, header(sequence=5)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_several_refused_batches_is_awaited() -> None:
    """A follower that refused two may get the first of them by way of another leader."""
    states = ProducerStates()
    take(states, header(sequence=0))
    for number in (1, 2):
        await_again(states, header(sequence=number))
    take(states, header(sequence=1))
    assert refusal(states, header(sequence=3)) is Reason.THROTTLED
    take(states, header(sequence=2))
    assert refusal(states, header(sequence=4)) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_batch_that_never_comes_again_is_a_gap_in_the_end() -> None:
    states = ProducerStates()
    take(states, header(sequence=0))
    await_again(states, header(sequence=1))
    late, clock = header(sequence=2), ManualClock()
    clock.ms += int(AWAITED_S * 1000) - 1
    assert refusal(states, late, clock) is Reason.THROTTLED
    clock.ms += 1
    assert refusal(states, late, clock) is Reason.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclass
class Model:
    """The rules again, written down as plainly as possible, with the whole history kept."""

    epoch: int | None = None
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    def judge(self, epoch: int, sequence: int, count: int) -> Reason | int | None:
        last = (sequence + count - 1) % 2**31
        if self.epoch is None:
            return None
        if epoch == self.epoch:
            for base, end, offset in self.batches[-5:]:
                if (base, end) == (sequence, last):
                    return offset
        if epoch < self.epoch:
            return Reason.INVALID_PRODUCER_EPOCH
        expected = 0 if epoch > self.epoch else (self.batches[-1][1] + 1) % 2**31
        return None if sequence == expected else Reason.OUT_OF_ORDER_SEQUENCE_NUMBER

    def take(self, epoch: int, sequence: int, count: int, offset: int) -> None:
        if epoch != self.epoch:
            self.batches = []
        self.epoch = epoch
        self.batches.append((sequence, (sequence + count - 1) % 2**31, offset))


near_wrap = st.integers(SEQUENCE_MAX - 3, SEQUENCE_MAX)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 2),
            st.one_of(st.integers(0, 6), near_wrap),
            st.integers(1, 3),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_random_produces_are_judged_as_the_model_judges_them(
    steps: list[tuple[int, int, int, int, bool]],
) -> None:
    states = ProducerStates()
    models = {0: Model(), 1: Model()}
    for offset, (producer_id, epoch, sequence, count, follows) in enumerate(steps):
        model = models[producer_id]
        if follows and model.batches and epoch == model.epoch:
            sequence = (model.batches[-1][1] + 1) % 2**31
        batch = header(producer_id, epoch, sequence, count)
        expected = model.judge(epoch, sequence, count)
        if isinstance(expected, Reason):
            assert refusal(states, batch) is expected
            continue
        duplicate = states.check(batch, CLOCK)
        assert (duplicate.base_offset if duplicate else None) == expected
        if duplicate is None:
            states.record(batch, offset, now_ms=0)
            model.take(epoch, sequence, count, offset)
