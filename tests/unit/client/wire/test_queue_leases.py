"""What a client says about its leases: once, together, and again where an answer got lost."""

from concurrent.futures import Future
from uuid import UUID

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.queue_leases import (
    RENEW_AFTER,
    AckGroup,
    AckType,
    Held,
    Lease,
    LeaseBook,
    LeaseLost,
    OutcomeUnknown,
    SharePlace,
)
from penstock.records.record import Record
from tests.unit.client.wire.fake_broker import TOPIC_ID, at

PLACE = SharePlace(TOPIC_ID, 0)
OTHER = SharePlace(UUID(int=8), 1)
DURATION_S = 30.0


def held(offset: int, *, attempt: int = 1, place: SharePlace = PLACE) -> Held:
    record = Record(offset=offset, value=b"%d" % offset)
    lease = Lease(at(place.partition), place.topic_id, record, attempt, settle=unused)
    return Held(place=place, lease=lease)


def unused(lease: Lease, wish: AckType) -> "Future[None]":
    raise AssertionError("the book settles by itself")


def filled(*offsets: int) -> tuple[LeaseBook, list[Held]]:
    book = LeaseBook()
    return book, [book.add(held(offset)) for offset in offsets]


def said(group: AckGroup) -> list[tuple[int, AckType]]:
    return [(ack.first, ack.type) for ack in group]


def test_wishes_of_a_partition_are_said_together_in_the_order_of_offsets() -> None:
    book, (first, second, third) = filled(5, 6, 7)
    book.wish(third, AckType.ACCEPT)
    book.wish(first, AckType.RELEASE)
    assert book.places_due() == {PLACE}
    group = book.take_due(PLACE)
    assert said(group) == [(5, AckType.RELEASE), (7, AckType.ACCEPT)]
    assert not book.places_due()
    book.succeeded(group, 0.0, DURATION_S)
    assert first.outcome.result(0) is None
    assert third.outcome.done()
    assert list(book) == [second]


def test_a_lease_is_renewed_before_its_time_is_over_and_again_after_that() -> None:
    book, (one,) = filled(5)
    book.renew_after(one, 100.0, DURATION_S)
    due = 100.0 + DURATION_S * RENEW_AFTER
    assert book.next_renewal() == due
    book.note_due(due - 0.1)
    assert not book.places_due()
    book.note_due(due)
    group = book.take_due(PLACE)
    assert said(group) == [(5, AckType.RENEW)]
    book.succeeded(group, due, DURATION_S)
    assert book.next_renewal() == due + DURATION_S * RENEW_AFTER


def test_what_is_settled_is_not_renewed() -> None:
    book, (one, two) = filled(5, 6)
    book.renew_after(one, 0.0, DURATION_S)
    book.renew_after(two, 1.0, DURATION_S)
    book.wish(one, AckType.ACCEPT)
    assert book.next_renewal() == 1.0 + DURATION_S * RENEW_AFTER
    book.succeeded(book.take_due(PLACE), 2.0, DURATION_S)
    book.note_due(1_000.0)
    assert said(book.take_due(PLACE)) == [(6, AckType.RENEW)]
    assert book.next_renewal() is None


def test_one_lost_lease_does_not_take_the_others_with_it() -> None:
    """A broker takes all of a partition or nothing, and does not say which one it did not like."""
    book, leases = filled(*range(8))
    for one in leases:
        book.wish(one, AckType.ACCEPT)
    requests = 0
    while book.places_due():
        group = book.take_due(PLACE)
        requests += 1
        if 5 in [ack.first for ack in group]:
            book.refused(PLACE, group, "The offset is not acquired.")
        else:
            book.succeeded(group, 0.0, DURATION_S)
    lost = [one for one in leases if one.outcome.exception(0) is not None]
    assert lost == [leases[5]]
    assert isinstance(lost[0].outcome.exception(0), LeaseLost)
    assert "offset 5 of partition 0 of topic orders is lost: The offset is not acquired." in str(
        lost[0].outcome.exception(0)
    )
    assert requests <= 7
    assert len(book) == 0


def test_a_renewal_that_is_refused_is_left_to_the_settling() -> None:
    book, (one,) = filled(5)
    book.renew_after(one, 0.0, DURATION_S)
    book.note_due(DURATION_S)
    assert book.refused(PLACE, book.take_due(PLACE), "not enabled") == "not enabled"
    assert book.next_renewal() is None
    book.wish(one, AckType.ACCEPT)
    book.succeeded(book.take_due(PLACE), 0.0, DURATION_S)
    assert one.outcome.result(0) is None


def test_an_ack_whose_answer_was_lost_is_said_again_and_may_stay_unknown() -> None:
    book, (one,) = filled(5)
    book.wish(one, AckType.ACCEPT)
    book.put_back(PLACE, book.take_due(PLACE), is_in_doubt=True)
    book.session_lost([PLACE])
    group = book.take_due(PLACE)
    assert said(group) == [(5, AckType.ACCEPT)]
    book.refused(PLACE, group, "The offset is not acquired.")
    assert isinstance(one.outcome.exception(0), OutcomeUnknown)


def test_a_release_whose_answer_was_lost_has_happened() -> None:
    """The broker has it, or gives everything back with the end of the connection."""
    book, (one, two) = filled(5, 6)
    book.wish(one, AckType.RELEASE)
    book.put_back(PLACE, book.take_due(PLACE), is_in_doubt=True)
    book.session_lost([PLACE])
    assert one.outcome.result(0) is None
    # The other one may still be ours, which only the broker knows.
    assert said(book.take_due(PLACE)) == [(6, AckType.RENEW)]
    assert list(book) == [two]


def test_a_record_that_is_leased_to_us_again_stays_in_the_hands_it_is_in() -> None:
    book, (one,) = filled(5)
    assert book.add(held(5, attempt=2)) is one
    assert one.lease.attempt == 2
    book.wish(one, AckType.ACCEPT)
    book.succeeded(book.take_due(PLACE), 0.0, DURATION_S)
    assert one.outcome.result(0) is None


def test_a_record_that_we_have_released_is_another_attempt_when_it_comes_back() -> None:
    book, (one,) = filled(5)
    book.wish(one, AckType.RELEASE)
    again = held(5, attempt=2)
    assert book.add(again) is again
    assert one.outcome.result(0) is None
    assert not book.take_due(PLACE), "the release must not end the new lease"
    assert book.find(again.lease) is again
    assert book.find(one.lease) is None


def test_gaps_are_said_alone_and_once() -> None:
    book, (one,) = filled(5)
    book.add_gap(PLACE, 6, 9)
    book.wish(one, AckType.ACCEPT)
    gap = book.take_due(PLACE)
    assert [(ack.first, ack.last, ack.type) for ack in gap] == [(6, 9, AckType.GAP)]
    book.refused(PLACE, gap, "no")
    assert said(book.take_due(PLACE)) == [(5, AckType.ACCEPT)]
    assert not book.places_due()


def test_a_partition_that_is_gone_takes_its_leases_with_it() -> None:
    book, (one, two) = filled(5, 6)
    other = book.add(held(5, place=OTHER))
    book.wish(one, AckType.ACCEPT)
    book.give_up(PLACE, "its topic was deleted")
    assert isinstance(one.outcome.exception(0), LeaseLost)
    assert not two.outcome.done()
    assert list(book) == [other]
    assert book.places_due() == set()


def test_at_the_end_every_wish_has_an_outcome() -> None:
    book, (one, two) = filled(5, 6)
    book.wish(one, AckType.ACCEPT)
    book.drop_all("the queue was closed")
    assert "is lost: the queue was closed." in str(one.outcome.exception(0))
    assert not two.outcome.done()
    assert not book.places_due()


def test_a_lease_is_settled_once() -> None:
    outcome: Future[None] = Future()
    lease = Lease(at(), TOPIC_ID, Record(), 1, lambda lease, wish: outcome)
    assert lease.accept() is outcome
    for again in (lease.accept, lease.release, lease.reject):
        with pytest.raises(ClientError, match="only once"):
            again()
