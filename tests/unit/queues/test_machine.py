"""What becomes of a leased record: acks, expiries, closed sessions, a log that moves."""

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from penstock.queues.commands import (
    AckBatch,
    AckType,
    Change,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.machine import ShareMachine
from penstock.queues.transitions import EVENTS, TRANSITIONS, Event, after

ANN, BOB = MemberId("ann"), MemberId("bob")
SETTINGS = ShareSettings()
AVAILABLE, LEASED = RecordState.AVAILABLE, RecordState.LEASED
ACKED, DEAD = RecordState.ACKED, RecordState.DEAD


def leased(first: int, last: int, attempts: int = 1, member_id: MemberId = ANN) -> Range:
    return Range(first, last, LEASED, attempts, member_id, SETTINGS.lease_ms)


def ack(first: int, last: int, *types: int) -> AckBatch:
    return AckBatch(first=first, last=last, types=types or (AckType.ACCEPT,))


def acknowledge(
    machine: ShareMachine,
    *batches: AckBatch,
    member_id: MemberId = ANN,
    settings: ShareSettings = SETTINGS,
) -> tuple[Range, ...]:
    change, renewed = machine.decide_acknowledge(member_id, batches, settings)
    machine.apply(change)
    machine.validate()
    return renewed


def refused(machine: ShareMachine, *batches: AckBatch, member_id: MemberId = ANN) -> Reason:
    before = machine.start, list(machine.ranges())
    with pytest.raises(Refused) as caught:
        machine.decide_acknowledge(member_id, batches, SETTINGS)
    assert (machine.start, list(machine.ranges())) == before
    return caught.value.reason


def states(machine: ShareMachine) -> list[tuple[int, int, RecordState, int]]:
    return [each[:4] for each in machine.ranges()]


def test_the_start_moves_behind_what_is_done() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    acknowledge(machine, ack(5, 9))
    assert machine.start == 0
    acknowledge(machine, ack(0, 4))
    assert (machine.start, machine.end, list(machine.ranges())) == (10, 10, [])


def test_a_change_says_only_what_changed() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    change, _ = machine.decide_acknowledge(ANN, [ack(3, 4)], SETTINGS)
    assert change == Change(start=0, ranges=(Range(3, 4, ACKED, 1),))
    change, _ = machine.decide_acknowledge(ANN, [ack(0, 4)], SETTINGS)
    assert change == Change(start=5)


def test_each_offset_can_have_its_own_type() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 5)])
    renewed = acknowledge(machine, ack(0, 5, 2, 0, 1, 3, 4, 4))
    assert states(machine) == [
        (0, 0, AVAILABLE, 1),
        (1, 2, ACKED, 1),
        (3, 3, DEAD, 1),
        (4, 5, LEASED, 1),
    ]
    assert renewed == (leased(4, 5),)


def test_a_released_record_keeps_its_attempts_until_it_is_dead() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 0, 4), leased(1, 1, 5)])
    acknowledge(machine, ack(0, 1, AckType.RELEASE))
    assert states(machine) == [(0, 0, AVAILABLE, 4), (1, 1, DEAD, 5)]


def test_a_lease_that_runs_out_is_given_back_or_dead() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 0, 4), leased(1, 1, 5)])
    machine.apply(machine.decide_expiry([leased(0, 0, 4), leased(1, 1, 5)], SETTINGS))
    assert states(machine) == [(0, 0, AVAILABLE, 4), (1, 1, DEAD, 5)]


@pytest.mark.parametrize(
    "stale",
    [leased(0, 9, 2), leased(0, 9, 1, BOB), leased(10, 12)],
    ids=["another attempt", "another member", "not leased"],
)
def test_a_lease_that_changed_meanwhile_does_not_run_out(stale: Range) -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9), Range(10, 12, ACKED, 1)])
    assert not machine.is_news(machine.decide_expiry([stale], SETTINGS))


def test_a_part_of_a_lease_can_run_out() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    machine.apply(machine.decide_expiry([leased(2, 3), leased(3, 4)], SETTINGS))
    assert states(machine) == [(0, 1, LEASED, 1), (2, 4, AVAILABLE, 1), (5, 9, LEASED, 1)]


def test_a_closed_session_gives_its_records_back_and_they_keep_their_attempts() -> None:
    ranges = [leased(0, 4, 4), leased(5, 9, 1, BOB), leased(10, 11, 5)]
    machine = ShareMachine(start=0, ranges=ranges)
    machine.apply(machine.decide_release(ANN, SETTINGS))
    assert states(machine) == [(0, 4, AVAILABLE, 4), (5, 9, LEASED, 1), (10, 11, DEAD, 5)]
    assert not machine.is_news(machine.decide_release(ANN, SETTINGS))


def test_a_renewed_lease_is_news_only_if_its_duration_is_another() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    change, renewed = machine.decide_acknowledge(ANN, [ack(0, 4, AckType.RENEW)], SETTINGS)
    assert (machine.is_news(change), renewed) == (False, (leased(0, 4),))
    longer = ShareSettings(lease_ms=60_000)
    change, _ = machine.decide_acknowledge(ANN, [ack(0, 4, AckType.RENEW)], longer)
    assert change.ranges == (leased(0, 4)._replace(lease_ms=60_000),)


def test_a_group_can_forbid_to_renew() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    strict = ShareSettings(is_renewable=False)
    with pytest.raises(Refused) as caught:
        machine.decide_acknowledge(ANN, [ack(0, 4, AckType.RENEW)], strict)
    assert caught.value.reason is Reason.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    "batches",
    [
        [ack(4, 3)],
        [ack(0, 5), ack(4, 9)],
        [ack(5, 9), ack(0, 4)],
        [AckBatch(first=0, last=4, types=())],
        [ack(0, 4, 1, 1)],
        [ack(0, 4, 5)],
        [ack(0, 4, -1)],
        [ack(10, 12)],
        [ack(0, 10)],
    ],
    ids=[
        "no range",
        "overlap",
        "out of order",
        "no types",
        "too few types",
        "unknown type",
        "negative type",
        "past the end",
        "over the end",
    ],
)
def test_a_malformed_acknowledgement_is_an_invalid_request(batches: list[AckBatch]) -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9)])
    assert refused(machine, *batches) is Reason.INVALID_REQUEST


def test_the_form_of_all_batches_comes_before_the_state_of_any() -> None:
    machine = ShareMachine(start=0, ranges=[Range(0, 9, AVAILABLE, 1)])
    assert refused(machine, ack(0, 4), ack(6, 5)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    "batches",
    [
        [ack(0, 4)],
        [ack(5, 9)],
        [ack(10, 14)],
        [ack(15, 19), ack(20, 24)],
        [ack(15, 17), ack(17, 19)],
    ],
    ids=["available", "another member's", "acked", "one of two", "twice"],
)
def test_a_record_that_the_member_has_not_leased_is_an_invalid_state(
    batches: list[AckBatch],
) -> None:
    machine = ShareMachine(
        start=0,
        ranges=[
            Range(0, 4, AVAILABLE, 1),
            leased(5, 9, 1, BOB),
            Range(10, 14, ACKED, 1),
            leased(15, 19),
            Range(20, 24, DEAD, 5),
        ],
    )
    assert refused(machine, *batches) is Reason.INVALID_RECORD_STATE


def test_while_nothing_is_out_no_offset_is_past_the_end() -> None:
    machine = ShareMachine(start=10)
    assert refused(machine, ack(10, 12)) is Reason.INVALID_RECORD_STATE


def test_a_word_about_what_is_below_the_start_changes_nothing() -> None:
    machine = ShareMachine(start=10, ranges=[leased(10, 19)])
    change, _ = machine.decide_acknowledge(ANN, [ack(0, 4, AckType.REJECT)], SETTINGS)
    assert not machine.is_news(change)
    acknowledge(machine, ack(5, 14))
    assert machine.start == 15


def test_the_start_follows_the_log() -> None:
    machine = ShareMachine(
        start=0, ranges=[leased(0, 4), Range(5, 6, ACKED, 1), leased(7, 9), Range(10, 14, DEAD, 5)]
    )
    assert machine.lost_below(6) == 5
    assert machine.decide_log_start(6) == Change(start=7)
    assert machine.lost_below(12) == 8
    machine.apply(machine.decide_log_start(12))
    assert (machine.start, machine.end, machine.leased_count) == (15, 15, 0)


def test_a_log_that_starts_behind_the_end_moves_both() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 4)])
    assert machine.lost_below(20) == 20
    machine.apply(machine.decide_log_start(20))
    assert (machine.start, machine.end, machine.first_available()) == (20, 20, 20)
    assert machine.lost_below(10) == 0
    assert not machine.is_news(machine.decide_log_start(10))


def test_another_machine_can_go_on_from_the_ranges() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 9), Range(10, 12, AVAILABLE, 2)])
    copy = ShareMachine(start=machine.start, ranges=machine.ranges())
    copy.validate()
    assert list(copy.ranges()) == list(machine.ranges())
    assert (copy.leased_count, copy.first_available(), copy.end) == (10, 10, 13)


def test_every_type_of_acknowledgement_is_a_transition_of_a_lease() -> None:
    assert set(EVENTS) == set(AckType)
    assert all((LEASED, event) in TRANSITIONS for event in EVENTS.values())


def test_only_a_redrive_leads_out_of_what_is_done() -> None:
    ways = [(state, event) for state, event in TRANSITIONS if state in (ACKED, DEAD)]
    assert ways == [(DEAD, Event.REOPEN)]


def test_a_transition_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(KeyError):
        after(Range(0, 0, ACKED, 1), Event.LEASE, SETTINGS)


def test_a_change_is_as_small_among_many_ranges_as_among_few() -> None:
    machine = ShareMachine(start=0, ranges=[leased(0, 20_000)])
    for offset in range(1, 20_000, 2):
        change, _ = machine.decide_acknowledge(ANN, [ack(offset, offset)], SETTINGS)
        assert len(change.ranges) == 1
        machine.apply(change)
    assert len(list(machine.ranges())) == 20_001
    assert machine.waiting_count == 10_000
