"""What the threads of one queue reader share: who leads what, who wants how much, what is leased.

Every method but the constructor is called while `changed` or `arrived` is held, which share a lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.client.wire.queue_leases import AckGroup, Held, Lease, LeaseBook, SharePlace
from penstock.client.wire.queue_session import ShareSession
from penstock.model.endpoint import Endpoint

# How long a broker without records is waited for while another one, which may have some, has to
# wait for its turn.
TURN_WAIT_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    places: frozenset[SharePlace]
    records_max: int
    wait_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    groups: dict[SharePlace, AckGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The session ends, and the thread with it."""


Job: TypeAlias = Fetch | Acknowledge | Close


class QueueBooks:
    def __init__(self, wait_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        # Those who talk to brokers wait for the one, those who take records for the other.
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.arrived = threading.Condition(lock)
        self.clock = clock
        self.leases = LeaseBook()
        self.ready: deque[Held] = deque()
        # How many records those wait for who take.
        self.wanted = 0
        self.is_fetching = True
        self.is_closing = False
        self.failure: BaseException | None = None
        self.assigned: frozenset[SharePlace] = frozenset()
        self.leaders: dict[SharePlace, Endpoint] = {}
        # Whether somebody has to look for leaders.
        self.is_unled = False
        self._led: dict[Endpoint, frozenset[SharePlace]] = {}
        self._wait_ms = wait_ms
        # Records that a broker may still bring, by brokers that are being asked.
        self._promised: dict[Endpoint, int] = {}
        # Brokers that have nothing to do, and when each was last asked.
        self._waiting: set[Endpoint] = set()
        self._turns: dict[Endpoint, int] = {}

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.wake_all()

    def wake_all(self) -> None:
        self.changed.notify_all()
        self.arrived.notify_all()

    def want(self, count: int) -> None:
        """This many more records are waited for, or fewer if it is negative."""
        self.wanted += count
        if count > 0:
            self.changed.notify_all()

    # Who leads

    def assign(self, places: frozenset[SharePlace]) -> None:
        self.assigned = places
        self.is_unled = True
        self.changed.notify_all()

    def without_leader(self) -> set[SharePlace]:
        """Of what is assigned, and of what is still in hand."""
        in_hand = (held.place for held in self.leases)
        wanted = {*self.assigned, *in_hand, *self.leases.places_due()}
        missing = wanted - self.leaders.keys()
        self.is_unled = bool(missing)
        return missing

    def lead(self, place: SharePlace, endpoint: Endpoint) -> None:
        self.leaders[place] = endpoint
        self._led.clear()
        self.changed.notify_all()

    def leader_lost(self, places: Iterable[SharePlace]) -> None:
        """Somebody else leads them, or nobody does."""
        lost = list(places)
        for place in lost:
            self.leaders.pop(place, None)
        self._led.clear()
        self.is_unled = True
        self.session_lost(lost)

    def session_lost(self, places: Iterable[SharePlace]) -> None:
        """What nobody has begun with is left to anybody; the rest is tried again."""
        lost = set(places)
        kept = deque(held for held in self.ready if held.place not in lost)
        for held in self.ready:
            if held.place in lost:
                self.leases.forget(held)
        self.ready = kept
        self.leases.session_lost(lost)
        self.changed.notify_all()

    def give_up(self, place: SharePlace, reason: str) -> None:
        """The partition is gone for good."""
        self.session_lost([place])
        self.leases.give_up(place, reason)
        self.assigned -= {place}
        self.leaders.pop(place, None)
        self._led.clear()
        self.changed.notify_all()

    def led_by(self, endpoint: Endpoint) -> frozenset[SharePlace]:
        known = self._led.get(endpoint)
        if known is None:
            known = frozenset(one for one, leader in self.leaders.items() if leader == endpoint)
            self._led[endpoint] = known
        return known

    # Who does what

    def next_job(self, endpoint: Endpoint, session: ShareSession) -> Job | None:
        """What the broker is asked next; None if there is nothing to ask it now."""
        self.leases.note_due(self.clock())
        due = [one for one in self.leases.places_due() if self.leaders.get(one) == endpoint]
        if due and not session.is_open:
            return self._fetch(endpoint, records_max=0, wait_ms=0)
        if due:
            groups = {place: group for place in due if (group := self.leases.take_due(place))}
            return Acknowledge(groups=groups)
        if self.is_closing:
            return Close()
        return self._next_fetch(endpoint)

    def _next_fetch(self, endpoint: Endpoint) -> Fetch | None:
        self._waiting.add(endpoint)
        if not self.is_fetching or not self.led_by(endpoint) & self.assigned:
            self._waiting.discard(endpoint)
            return None
        free = self.wanted - len(self.ready) - sum(self._promised.values())
        if free <= 0 or not self._is_next(endpoint):
            return None
        records_max = -(-free // len(self._waiting))
        has_rivals = len(self._waiting) > 1 and records_max == free
        wait_ms = min(self._wait_ms, TURN_WAIT_MS) if has_rivals else self._wait_ms
        return self._fetch(endpoint, records_max=records_max, wait_ms=wait_ms)

    def _is_next(self, endpoint: Endpoint) -> bool:
        """Brokers take turns where there is not enough demand for all."""
        own = self._turns.get(endpoint, 0)
        return all(own <= self._turns.get(other, 0) for other in self._waiting)

    def _fetch(self, endpoint: Endpoint, *, records_max: int, wait_ms: int) -> Fetch:
        self._waiting.discard(endpoint)
        self._promised[endpoint] = records_max
        if records_max:
            self._turns[endpoint] = 1 + max(self._turns.values(), default=0)
        places = self.led_by(endpoint) & self.assigned
        self.changed.notify_all()
        return Fetch(places=places, records_max=records_max, wait_ms=wait_ms)

    def fetch_ended(self, endpoint: Endpoint) -> None:
        self._promised.pop(endpoint, None)
        self.changed.notify_all()

    def retire(self, endpoint: Endpoint) -> None:
        """Its thread ends, and nobody waits for its turn."""
        self._waiting.discard(endpoint)
        self._promised.pop(endpoint, None)
        self.changed.notify_all()

    def idle_s(self) -> float | None:
        """How long a broker's thread may sleep unless something changes."""
        due = self.leases.next_renewal()
        return None if due is None else max(due - self.clock(), 0.0)

    # Who takes

    def give(self, held: Held) -> None:
        self.ready.append(held)
        self.arrived.notify()

    def take(self, count_max: int) -> list[Lease]:
        return [self.ready.popleft().lease for _ in range(min(count_max, len(self.ready)))]

    def is_settled(self) -> bool:
        """Whether the broker has answered to everything that was said about leases."""
        return all(held.wish is None for held in self.leases)
