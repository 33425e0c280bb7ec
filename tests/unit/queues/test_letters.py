"""What a queue stores of its dead letters: plans, sequences, and how far letters came back."""

from uuid import UUID

import pytest

from penstock.model.ids import GroupId, TopicId
from penstock.queues.commands import Change, Death, Range, RecordState, ShareSettings
from penstock.queues.dead_letters import (
    REDRIVES,
    copy_record,
    decide_arrived,
    decide_no_letters,
    decide_plan,
    decide_shorter,
    letter_record,
    letters,
    origin_of,
)
from penstock.queues.layout import QueueKey
from penstock.queues.letters import Copies, LetterState, Redriven, Sender
from penstock.queues.machine import ShareMachine
from penstock.records.record import Record

DLQ = TopicId(UUID(int=9))
KEY = QueueKey(GroupId("g"), TopicId(UUID(int=7)), 2)
SETTINGS = ShareSettings(has_dead_letters=True)
SENDER = Sender(DLQ, 2, 77)
DYING = Range(0, 3, RecordState.DYING, 5, death=Death.TRIED_TOO_OFTEN)


def with_dying() -> ShareMachine:
    machine = ShareMachine(start=0)
    machine.apply(Change(start=4, ranges=(DYING,)))
    machine.validate()
    return machine


def test_the_start_moves_on_behind_dying_records() -> None:
    machine = with_dying()
    assert (machine.start, machine.dying_count, machine.in_flight) == (4, 4, 0)
    assert machine.lost_below(9) == 5, "they are not lost with the log"


def test_a_batch_that_arrived_is_dead_and_its_sequence_used_in_one_change() -> None:
    machine = with_dying()
    chosen = [letter for each in machine.dying() for letter in letters(each)]
    machine.apply(decide_plan(machine, chosen, SENDER))
    assert machine.letters.plan is not None
    assert machine.dying_count == 4, "nothing has arrived yet"
    machine.apply(decide_shorter(machine))
    assert machine.letters.sender == SENDER, "nothing was appended"
    assert [letter.offset for letter in machine.letters.plan.in_batch] == [0, 1]
    assert [letter.offset for letter in machine.letters.plan.letters] == [0, 1, 2, 3]
    change = decide_arrived(machine, 2, SETTINGS)
    machine.apply(change)
    machine.validate()
    assert [each[:2] for each in machine.dying()] == [(2, 3)]
    assert machine.letters == LetterState(sender=SENDER.after(2), sent_count=2)


def test_a_batch_before_it_was_shortened_may_have_arrived() -> None:
    machine = with_dying()
    chosen = [letter for each in machine.dying() for letter in letters(each)]
    machine.apply(decide_plan(machine, chosen, SENDER))
    machine.apply(decide_shorter(machine))
    machine.apply(decide_arrived(machine, 4, SETTINGS))
    assert machine.dying_count == 0
    assert machine.letters.sender == SENDER.after(4)


def test_without_a_topic_all_are_dead() -> None:
    machine = with_dying()
    machine.apply(decide_no_letters(machine, SETTINGS))
    machine.validate()
    assert not machine.has_letters


def test_sequences_begin_again_after_the_last_one() -> None:
    assert SENDER._replace(sequence=2**31 - 1).after(2).sequence == 1


def test_the_last_epoch_has_no_next_one() -> None:
    renewed = SENDER._replace(sequence=5).renewed()
    assert renewed == SENDER._replace(epoch=1)
    assert SENDER._replace(epoch=2**15 - 1).renewed() is None


def test_copies_that_were_refused_come_back_another_time_or_are_passed() -> None:
    state = LetterState().copying(Copies(DLQ, 0, (3, 4)), SENDER, 5)
    assert (state.redriven_up_to(DLQ, 0), state.redriven_count) == (5, 2)
    again = state.uncopied(is_passed=False)
    assert (again.redriven_up_to(DLQ, 0), again.redriven_count, again.copies) == (3, 0, None)
    passed = state.uncopied(is_passed=True)
    assert (passed.redriven_up_to(DLQ, 0), passed.redriven_count) == (5, 0)
    done = state.copied()
    assert (done.copier, done.copiers, done.copies) == (SENDER.after(2), (77,), None)


def test_positions_of_each_partition_are_kept_apart() -> None:
    state = LetterState().redriven_to(Redriven(DLQ, 0, 3), 1).redriven_to(Redriven(DLQ, 1, 7), 1)
    state = state.redriven_to(Redriven(DLQ, 0, 9), 2)
    assert [state.redriven_up_to(DLQ, index) for index in range(3)] == [9, 7, 0]
    assert state.redriven_count == 4


def test_a_letter_says_where_it_is_from_and_a_copy_how_often_it_came_back() -> None:
    (first, *_) = letters(DYING)
    own = Record(timestamp_ms=5, key=b"k", value=b"v", headers=(("trace", b"1"),))
    letter = letter_record(first, own, key=KEY, topic="jobs", now_ms=9)
    origin = origin_of(letter.headers)
    assert origin == ("g", "jobs", 2, 0, 0, str(KEY.topic_id))
    copy = copy_record(letter, group="g", now_ms=9)
    assert (copy.key, copy.value, copy.timestamp_ms) == (b"k", b"v", 5)
    assert dict(copy.headers)["trace"] == b"1"
    again = letter_record(first, copy, key=KEY, topic="jobs", now_ms=9)
    assert dict(again.headers)[REDRIVES] == b"1"


@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"\xff", b"1" * 30, b"1" * 5000])
def test_headers_that_say_nonsense_are_not_of_a_letter(value: bytes | None) -> None:
    (first, *_) = letters(DYING)
    letter = letter_record(first, None, key=KEY, topic="jobs", now_ms=9)
    for name in ("__dlq.errors.offset", "__dlq.errors.partition"):
        bad = [(each, value if each == name else text) for each, text in letter.headers]
        assert origin_of(tuple(bad)) is None
