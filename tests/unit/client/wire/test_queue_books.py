"""Which broker is asked next, for how many records, and how long it may keep us waiting."""

from collections.abc import Iterator
from concurrent.futures import Future
from uuid import UUID

import pytest

from penstock.client.wire.queue_books import TURN_WAIT_MS, Acknowledge, Close, Fetch, QueueBooks
from penstock.client.wire.queue_leases import AckType, Held, Lease, SharePlace
from penstock.client.wire.queue_session import ShareSession
from penstock.model.endpoint import Endpoint
from penstock.records.record import Record
from tests.unit.client.wire.fake_broker import TOPIC_ID, at
from tests.unit.clocks import ManualClock

WAIT_MS = 500
A, B, C = (Endpoint("127.0.0.1", port) for port in (1, 2, 3))
PLACES = {A: SharePlace(TOPIC_ID, 0), B: SharePlace(TOPIC_ID, 1), C: SharePlace(TOPIC_ID, 2)}


class Desk:
    """Books with a session for each broker."""

    def __init__(self, *brokers: Endpoint) -> None:
        self.clock = ManualClock()
        self.books = QueueBooks(WAIT_MS, self.clock.monotonic)
        self.sessions = {one: ShareSession("g", "m") for one in brokers}
        with self.books.changed:
            self.books.assign(frozenset(PLACES[one] for one in brokers))
            for one in brokers:
                self.books.lead(PLACES[one], one)

    def job(self, broker: Endpoint) -> object:
        return self.books.next_job(broker, self.sessions[broker])

    def fetch(self, broker: Endpoint) -> tuple[int, int] | None:
        """Records and milliseconds of the broker's next fetch, if it has one."""
        job = self.job(broker)
        assert job is None or isinstance(job, Fetch)
        return None if job is None else (job.records_max, job.wait_ms)

    def come_back(self, broker: Endpoint, *offsets: int) -> None:
        """The fetch has brought these."""
        session = self.sessions[broker]
        session.fetched([PLACES[broker]])
        for offset in offsets:
            lease = Lease(at(), TOPIC_ID, Record(offset=offset), 1, unused)
            held = self.books.leases.add(Held(place=PLACES[broker], lease=lease))
            self.books.give(held)
        self.books.fetch_ended(broker)


def unused(lease: Lease, wish: AckType) -> "Future[None]":
    raise AssertionError("the books settle")


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(A, B, C)
    with made.books.changed:
        yield made


def test_nobody_is_asked_before_somebody_wants_something(desk: Desk) -> None:
    assert [desk.fetch(one) for one in (A, B, C)] == [None] * 3
    desk.books.want(1)
    assert desk.fetch(A) is not None


def test_brokers_take_turns_where_one_record_is_wanted(desk: Desk) -> None:
    for one in (A, B, C):
        desk.job(one)
    desk.books.want(1)
    order = []
    for _ in range(6):
        for one in (A, B, C):
            if (found := desk.fetch(one)) is not None:
                assert found == (1, TURN_WAIT_MS), "the others must not wait for long"
                assert [desk.fetch(other) for other in {A, B, C} - {one}] == [None, None]
                order.append(one)
                desk.come_back(one)
                desk.job(one)
                break
    assert sorted(order[:3]) == sorted(order[3:]) == sorted([A, B, C])


def test_a_demand_for_more_is_spread_over_the_brokers(desk: Desk) -> None:
    for one in (A, B, C):
        desk.job(one)
    desk.books.want(7)
    found = [desk.fetch(one) for one in (A, B, C)]
    assert found == [(3, WAIT_MS), (2, WAIT_MS), (2, WAIT_MS)]
    desk.come_back(A, 0, 1, 2)
    assert desk.fetch(A) is None, "three are there and four are under way"
    assert [one.record.offset for one in desk.books.take(5)] == [0, 1, 2]


def test_what_is_there_and_what_is_under_way_is_not_asked_for_again() -> None:
    desk = Desk(A)
    with desk.books.changed:
        desk.books.want(2)
        assert desk.fetch(A) == (2, WAIT_MS)
        assert desk.fetch(A) is None
        desk.come_back(A, 0)
        assert desk.fetch(A) == (1, WAIT_MS)
        desk.come_back(A)
        desk.books.want(-2)
        assert desk.fetch(A) is None


def test_acknowledgements_come_before_fetches_and_open_a_session_where_there_is_none() -> None:
    desk = Desk(A)
    with desk.books.changed:
        desk.books.want(1)
        desk.fetch(A)
        desk.come_back(A, 5)
        (lease,) = desk.books.take(1)
        held = desk.books.leases.find(lease)
        assert held is not None
        desk.books.leases.wish(held, AckType.ACCEPT)
        desk.sessions[A].reset()
        opening = desk.job(A)
        assert isinstance(opening, Fetch)
        assert (opening.records_max, opening.wait_ms) == (0, 0)
        desk.come_back(A)
        job = desk.job(A)
        assert isinstance(job, Acknowledge)
        assert list(job.groups) == [PLACES[A]]


def test_nothing_is_leased_while_the_rest_is_settled_and_then_sessions_are_closed() -> None:
    desk = Desk(A)
    with desk.books.changed:
        desk.books.want(1)
        desk.books.is_fetching = False
        assert desk.job(A) is None
        desk.books.is_closing = True
        assert isinstance(desk.job(A), Close)


def test_records_that_nobody_has_begun_with_are_left_to_others_when_a_leader_is_lost() -> None:
    desk = Desk(A, B)
    with desk.books.changed:
        desk.books.want(4)
        desk.fetch(A)
        desk.come_back(A, 5, 6)
        (begun,) = desk.books.take(1)
        desk.fetch(B)
        desk.come_back(B, 7)
        assert desk.books.without_leader() == set()
        desk.books.leader_lost([PLACES[A]])
        assert [held.offset for held in desk.books.ready] == [7]
        assert desk.books.leases.find(begun) is not None
        assert desk.books.is_unled
        assert desk.books.without_leader() == {PLACES[A]}
        desk.books.lead(PLACES[A], B)
        assert desk.books.without_leader() == set()
        assert not desk.books.is_unled
        assert desk.books.led_by(B) == {PLACES[A], PLACES[B]}
        # What was begun with is confirmed with the new leader.
        job = desk.job(B)
        assert isinstance(job, Acknowledge)
        assert [ack.type for ack in job.groups[PLACES[A]]] == [AckType.RENEW]


def test_a_partition_that_is_gone_is_not_looked_for() -> None:
    desk = Desk(A)
    gone = SharePlace(UUID(int=99), 0)
    with desk.books.changed:
        desk.books.assign(frozenset({PLACES[A], gone}))
        assert desk.books.without_leader() == {gone}
        desk.books.give_up(gone, "its topic was deleted")
        assert desk.books.without_leader() == set()
