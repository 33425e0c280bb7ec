"""What one fetch of a queue gets."""

import pytest

from penstock.model.ids import MemberId
from penstock.queues.commands import AcquiredRange, Range, RecordState, ShareSettings
from penstock.queues.delivery import is_last_attempt, throttled_from
from penstock.queues.machine import ShareMachine
from penstock.queues.reading import Needed

ANN, BOB = MemberId("ann"), MemberId("bob")
SETTINGS = ShareSettings()
AVAILABLE, LEASED = RecordState.AVAILABLE, RecordState.LEASED


def acquire(
    machine: ShareMachine,
    *spans: tuple[int, int],
    member_id: MemberId = ANN,
    records_max: int = 500,
    batch_size: int = 500,
    is_exact: bool = False,
    settings: ShareSettings = SETTINGS,
    read_from: int | None = None,
) -> list[tuple[int, int, int]]:
    change, acquired = machine.decide_acquire(
        member_id,
        spans,
        records_max=records_max,
        batch_size=batch_size,
        is_exact=is_exact,
        settings=settings,
        read_from=read_from,
    )
    machine.apply(change)
    machine.validate()
    return [tuple(each) for each in acquired]


def expire(machine: ShareMachine, settings: ShareSettings = SETTINGS) -> None:
    machine.apply(machine.decide_expiry(list(machine.leases()), settings))


def states(machine: ShareMachine) -> list[tuple[int, int, RecordState, int]]:
    return [each[:4] for each in machine.ranges()]


def test_a_poll_knows_how_far_it_has_to_read() -> None:
    machine = ShareMachine(start=0)
    assert machine.needed(0, 5, 1) == Needed(0, 5), "nothing is known yet"
    acquire(machine, (0, 9), (10, 19))
    assert machine.needed(20, 5, 1) == Needed(20, 5)
    ranges = [Range(2, 4, AVAILABLE, 1), Range(12, 15, AVAILABLE, 1)]
    machine.apply(machine.change_of(ranges))
    assert machine.needed(2, 5, 1) == Needed(14, 1), "the fifth that came back, and its group"
    assert machine.needed(2, 10, 1) == Needed(20, 3), "the rest has to be new"
    assert machine.needed(5, 4, 3) == Needed(18, 1), "a group goes out whole"
    assert machine.needed(5, 4, 500) == Needed(19, 1), "nothing new belongs to it"


def test_a_batch_goes_out_whole_even_beyond_the_number_of_records() -> None:
    machine = ShareMachine(start=0)
    assert acquire(machine, (0, 9), (10, 19), (20, 29), records_max=11) == [(0, 19, 1)]
    assert (machine.start, machine.end, machine.first_available()) == (0, 20, 20)


def test_an_exact_number_of_records_is_kept() -> None:
    machine = ShareMachine(start=0)
    assert acquire(machine, (0, 9), (10, 19), records_max=12, is_exact=True) == [(0, 11, 1)]


def test_a_batch_that_has_begun_is_known_to_its_end() -> None:
    machine = ShareMachine(start=0)
    acquire(machine, (0, 9), records_max=4, is_exact=True)
    assert states(machine) == [(0, 3, LEASED, 1), (4, 9, AVAILABLE, 0)]
    assert machine.first_available() == 4
    assert acquire(machine, (0, 9), (10, 19), member_id=BOB) == [(4, 9, 1), (10, 19, 1)]


def test_batches_are_answered_in_groups_of_the_size_that_is_asked_for() -> None:
    machine = ShareMachine(start=0)
    spans = [(first, first + 4) for first in range(0, 40, 5)]
    assert acquire(machine, *spans, batch_size=10) == [
        (0, 9, 1),
        (10, 19, 1),
        (20, 29, 1),
        (30, 39, 1),
    ]


def test_an_exact_number_of_records_is_one_range() -> None:
    machine = ShareMachine(start=0)
    spans = [(0, 4), (5, 9), (10, 14)]
    assert acquire(machine, *spans, batch_size=5, records_max=12, is_exact=True) == [(0, 11, 1)]


def test_no_record_is_leased_twice() -> None:
    machine = ShareMachine(start=0)
    assert acquire(machine, (0, 9)) == [(0, 9, 1)]
    assert acquire(machine, (0, 9), member_id=BOB) == []


def test_what_came_back_goes_out_first_and_counts_its_attempts() -> None:
    machine = ShareMachine(start=0)
    acquire(machine, (0, 9))
    expire(machine)
    assert machine.first_available() == 0
    assert acquire(machine, (0, 9), (10, 14), member_id=BOB) == [(0, 9, 2), (10, 14, 1)]


def test_a_fetch_in_the_middle_of_a_batch_gets_nothing_below_the_start() -> None:
    machine = ShareMachine(start=7)
    assert acquire(machine, (0, 4), (5, 9)) == [(7, 9, 1)]


def test_leases_have_a_limit_that_a_redelivery_counts_against_too() -> None:
    settings = ShareSettings(leased_max=10)
    machine = ShareMachine(start=0, ranges=[Range(0, 4, AVAILABLE, 1)])
    assert acquire(machine, (5, 12), settings=settings) == [(5, 12, 1)]
    assert acquire(machine, (0, 4), is_exact=True, settings=settings) == [(0, 1, 2)]
    assert not machine.has_room(settings)
    assert acquire(machine, (0, 4), settings=settings) == []


def test_what_is_done_behind_a_slow_record_does_not_use_up_the_leases() -> None:
    """Kafka would stop here: its limit counts all offsets from start to end."""
    settings = ShareSettings(leased_max=10)
    done = [Range(0, 0, LEASED, 1, ANN, 1), Range(1, 999, RecordState.ACKED, 1)]
    machine = ShareMachine(start=0, ranges=done)
    assert acquire(machine, (1000, 1004), settings=settings) == [(1000, 1004, 1)]


def test_what_is_done_behind_a_slow_record_has_a_limit_of_its_own() -> None:
    settings = ShareSettings(waiting_max=50)
    done = [Range(0, 0, AVAILABLE, 1), Range(1, 50, RecordState.ACKED, 1)]
    machine = ShareMachine(start=0, ranges=done)
    assert machine.has_room(settings)
    assert acquire(machine, (0, 0), (51, 60), settings=settings) == [(0, 0, 2)]
    assert not machine.has_room(settings)


def test_offsets_without_records_do_not_count_as_done_behind_a_slow_record() -> None:
    settings = ShareSettings(waiting_max=50)
    machine = ShareMachine(start=0)
    acquire(machine, (0, 0), (1000, 1000), (2000, 2000), settings=settings, records_max=2)
    assert machine.waiting_count == 0
    assert acquire(machine, (2000, 2000), settings=settings) == [(2000, 2000, 1)]


def test_offsets_between_batches_are_done_with() -> None:
    machine = ShareMachine(start=0)
    assert acquire(machine, (3, 4), (8, 9)) == [(3, 4, 1), (8, 9, 1)]
    assert machine.start == 3
    assert machine.done_count == 3


def test_what_compaction_removed_after_a_delivery_is_done_with() -> None:
    machine = ShareMachine(start=0)
    acquire(machine, (0, 4), (5, 9))
    expire(machine)
    assert acquire(machine, (5, 9), read_from=0) == [(5, 9, 2)]
    assert machine.start == 5


def test_a_leased_record_is_not_done_with_because_a_read_does_not_show_it() -> None:
    machine = ShareMachine(start=0)
    acquire(machine, (0, 4))
    acquire(machine, (5, 9), read_from=0, member_id=BOB)
    assert machine.start == 0
    assert machine.leased_count == 10


def test_without_a_place_to_read_from_nothing_before_the_first_batch_is_done_with() -> None:
    machine = ShareMachine(start=0, ranges=[Range(0, 4, AVAILABLE, 1)])
    acquire(machine, (5, 9))
    assert states(machine) == [(0, 4, AVAILABLE, 1), (5, 9, LEASED, 1)]


@pytest.mark.parametrize(
    ("attempts_max", "throttled"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)]
)
def test_records_are_throttled_from_half_of_the_attempts_on(
    attempts_max: int, throttled: int
) -> None:
    assert throttled_from(attempts_max) == throttled


def test_a_suspicious_record_goes_out_with_half_of_the_others_then_with_a_quarter() -> None:
    settings = ShareSettings(delivery_attempts_max=6)
    for attempts, expected in ((2, 16), (3, 8), (4, 4)):
        machine = ShareMachine(start=0, ranges=[Range(0, 15, AVAILABLE, attempts)])
        got = acquire(machine, (0, 15), (16, 31), settings=settings)
        count = sum(last - first + 1 for first, last, _ in got if first < 16)
        assert (count, got[-1][1] > 15) == (expected, attempts == 2)


def test_the_last_attempt_goes_out_alone() -> None:
    machine = ShareMachine(start=0, ranges=[Range(0, 9, AVAILABLE, 4)])
    assert acquire(machine, (0, 9), (10, 19)) == [(0, 0, 5)]
    assert acquire(machine, (0, 9), (10, 19)) == [(1, 1, 5)]


def test_with_two_attempts_none_goes_out_alone() -> None:
    assert not is_last_attempt(1, 2)
    machine = ShareMachine(start=0, ranges=[Range(0, 9, AVAILABLE, 1)])
    two = ShareSettings(delivery_attempts_max=2)
    assert acquire(machine, (0, 9), settings=two) == [(0, 9, 2)]


def test_nothing_goes_out_together_with_a_later_suspicious_record() -> None:
    machine = ShareMachine(start=0, ranges=[Range(0, 9, AVAILABLE, 1), Range(10, 19, AVAILABLE, 3)])
    assert acquire(machine, (0, 9), (10, 19), batch_size=10) == [(0, 9, 2)]
    assert acquire(machine, (0, 9), (10, 19), batch_size=10) == [(10, 14, 4)]


def test_a_fetch_of_nothing_gets_nothing() -> None:
    machine = ShareMachine(start=0)
    assert acquire(machine) == []
    assert acquire(machine, (0, 9), records_max=0) == []
    assert machine.end == 0


def test_the_answer_says_the_attempt() -> None:
    machine = ShareMachine(start=0)
    _, acquired = machine.decide_acquire(
        ANN, [(0, 0)], records_max=1, batch_size=1, is_exact=True, settings=SETTINGS
    )
    assert acquired == (AcquiredRange(first=0, last=0, attempt=1),)
