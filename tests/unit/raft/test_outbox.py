"""Messages leave only after the write that makes their promise true, and no more than needed."""

import pytest

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import HardState
from penstock.raft.messages import AppendResponse, HeartbeatResponse, Message
from penstock.raft.outbox import Outbox
from tests.unit.raft.groups import rid

OLD, NEW = HardState(Term(1), None), HardState(Term(2), None)


def acknowledgement(index: int, term: int = 2) -> AppendResponse:
    return AppendResponse(rid(2), rid(1), Term(term), LogIndex(index), LogIndex(0))


BEAT: Message = HeartbeatResponse(rid(2), rid(1), Term(2), LogIndex(0), 0)


def test_a_promise_about_state_that_no_write_carries_yet_waits_for_the_next_write() -> None:
    outbox = Outbox(OLD)
    outbox.send_when_term_is_durable(BEAT, NEW)
    number = outbox.issue(NEW, log_changed=False)
    later = outbox.issue(None, log_changed=True)
    assert outbox.sendable == []
    assert outbox.release(number, Term(2)) == [BEAT]
    assert later == number + 1


def test_a_term_that_is_durable_already_needs_no_write() -> None:
    outbox = Outbox(OLD)
    outbox.issue(None, log_changed=True)
    outbox.send_when_term_is_durable(BEAT, OLD)
    assert outbox.take() == [BEAT]


def test_the_furthest_acknowledgement_stands_for_all_of_them() -> None:
    outbox = Outbox(NEW)
    for index in (3, 9, 5):
        outbox.send_when_entries_are_durable(acknowledgement(index), NEW, True)
    first = outbox.issue(None, log_changed=True)
    outbox.send_when_entries_are_durable(acknowledgement(10), NEW, True)
    second = outbox.issue(None, log_changed=True)
    assert outbox.release(first, Term(2)) == [acknowledgement(9)]
    assert outbox.release(second, Term(2)) == [acknowledgement(10)]


def test_a_slow_disk_does_not_pile_up_acknowledgements() -> None:
    outbox = Outbox(NEW)
    number = outbox.issue(None, log_changed=True)
    for _ in range(1000):
        outbox.send_when_entries_are_durable(acknowledgement(4), NEW, False)
    assert len(outbox._waiting) == 1
    assert outbox.release(number, Term(2)) == [acknowledgement(4)]


def test_what_an_earlier_term_promised_is_dropped() -> None:
    outbox = Outbox(OLD)
    outbox.send_when_entries_are_durable(acknowledgement(4, term=1), OLD, True)
    assert outbox.release(outbox.issue(NEW, log_changed=True), Term(2)) == []


def test_a_write_that_was_never_issued_can_not_be_durable() -> None:
    with pytest.raises(AssertionError):
        Outbox(OLD).release(1, Term(1))
