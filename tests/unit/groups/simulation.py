"""Consumers and their coordinator on a simulated clock and network, with faults of all kinds.

Clients behave as correct consumers do: they heartbeat while they have an assignment, join again
when told to, give up what they own when they must, and repeat requests whose answers were lost. Two
kinds: eager ones (range) give up everything before they join again; cooperative ones keep what they
own while they join, and give up only what the assignment takes away.

The world checks at every change of ownership that no partition has two owners.
"""

import heapq
import json
from collections.abc import Callable
from random import Random

from penstock.groups.commands import (
    NO_MEMBER,
    Departure,
    Join,
    JoinAnswer,
    MemberProtocol,
    Sync,
    SyncAnswer,
)
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Store, Ticket, Timer
from penstock.groups.group import Group
from penstock.groups.records import GroupMetadata
from penstock.groups.settings import GroupSettings
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from penstock.replication.deadlines import Deadlines
from tests.unit.groups.driver import GROUP, FakeClock, subscription

PARTITIONS = frozenset(range(7))
SESSION_MS = 6_000
HEARTBEAT_MS = 1_500
REBALANCE_MS = 20_000
RETRY_MS = 100


class World:
    """Time, the network, the broker's group, and who owns what."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = FakeClock()
        self.clients: list[Client] = []
        self.settings = GroupSettings()
        self.group = Group(GROUP, settings=self.settings, clock=self.clock)
        self.stored: GroupMetadata | None = None
        self.fails_to_store = False
        self.parked: set[Request] = set()
        self._deadlines: Deadlines[tuple[Timer, MemberId]] = Deadlines()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._epoch = 0

    # Time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.clock.ms + delay_ms, self._count, action))

    def run(self, duration_ms: int) -> None:
        end = self.clock.ms + duration_ms
        while True:
            timer_at = self._deadlines.next_at()
            timer_ms = end + 1 if timer_at is None else max(round(timer_at * 1000), self.clock.ms)
            event_ms = self._events[0][0] if self._events else end + 1
            if min(timer_ms, event_ms) > end:
                break
            self.clock.ms = min(timer_ms, event_ms)
            if event_ms <= timer_ms:
                heapq.heappop(self._events)[2]()
            else:
                assert timer_at is not None
                while (key := self._deadlines.pop_due(timer_at)) is not None:
                    self._perform(self.group.expire(*key))
        self.clock.ms = end

    # The broker

    def restart(self) -> None:
        """kill -9: only what was stored is left, and every connection is cut."""
        self._epoch += 1
        self._deadlines = Deadlines()
        if self.stored is None:
            self.group = Group(GROUP, settings=self.settings, clock=self.clock)
        else:
            self.group = Group.restored(
                GROUP, self.stored, settings=self.settings, clock=self.clock
            )
        parked, self.parked = self.parked, set()
        for client in self.clients:
            client.excuse()
        for request in parked:
            self.after(1, request.lost)
        self._perform(self.group.start_sessions())

    def send(self, request: "Request", handle: Callable[[], None]) -> None:
        epoch = self._epoch

        def arrive() -> None:
            if epoch == self._epoch:
                self.parked.add(request)
                handle()
            else:
                request.lost()

        self.after(self._delay_ms(), arrive)

    def join(self, request: "Request", command: Join) -> None:
        self._count += 1
        new_id = MemberId(f"m{self._count}")
        if request.client.waiting is not request:
            request.client.overtaken()
        self._perform(self.group.join(command, Ticket(request), new_id))

    def sync(self, request: "Request", command: Sync) -> None:
        self._perform(self.group.sync(command, Ticket(request)))

    def leave(self, departure: Departure) -> None:
        self._perform(self.group.leave([departure])[1])

    def heartbeat(self, request: "Request", member_id: MemberId, generation: int) -> None:
        outcome: Reason | None = None
        try:
            instance_id = request.client.instance_id
            session_ms = self.group.heartbeat(member_id, instance_id, generation)
        except Refused as refused:
            outcome = refused.reason
        else:
            at = self.clock.monotonic() + session_ms / 1000
            self._deadlines.set((Timer.SESSION, member_id), at)
            if self.group.state is GroupState.PREPARING_REBALANCE:
                outcome = Reason.REBALANCE_IN_PROGRESS
        self._answer(request, outcome)

    def _perform(self, effects: list[Effect]) -> None:
        self.group.validate()
        for effect in effects:
            if isinstance(effect, Answer):
                assert isinstance(effect.ticket, Request)
                self._answer(effect.ticket, effect.answer)
            elif isinstance(effect, SetTimer):
                at = self.clock.monotonic() + effect.delay_ms / 1000
                self._deadlines.set((effect.timer, effect.member_id), at)
            elif isinstance(effect, CancelTimer):
                self._deadlines.cancel((effect.timer, effect.member_id))
            else:
                self._store(effect)

    def _store(self, store: Store) -> None:
        epoch, fails = self._epoch, self.fails_to_store

        def end() -> None:
            if epoch != self._epoch:
                return
            if not fails:
                self.stored = store.record.metadata
            self._perform(self.group.stored(store, Reason.NOT_COORDINATOR if fails else None))

        self.after(self.random.randint(1, 5), end)

    def _answer(self, request: "Request", answer: object) -> None:
        assert request in self.parked, "a request was answered twice, or after a restart"
        self.parked.remove(request)
        self.after(self._delay_ms(), lambda: request.answered(answer))

    def _delay_ms(self) -> int:
        return self.random.choice((1, 1, 2, 5, 30))

    # Ownership

    def check_owners(self) -> None:
        owners: dict[int, Client] = {}
        for client in self.clients:
            if client.is_alive and not client.is_excused:
                for partition in client.owned:
                    assert partition not in owners, (
                        f"{partition} belongs to {client} and {owners[partition]}"
                    )
                    owners[partition] = client

    def live_clients(self) -> "list[Client]":
        return [client for client in self.clients if client.is_alive]


class Request:
    """One request on a connection; its answer counts only while the client still waits for it."""

    def __init__(self, client: "Client", then: Callable[[object], None]) -> None:
        self.client = client
        self.then = then
        self.faults = client.faults

    def answered(self, answer: object) -> None:
        client = self.client
        if client.is_alive and client.waiting is self:
            if client.is_paused:
                client.unread = lambda: self.answered(answer)
                return
            client.waiting = None
            # An answer to a request from before the last fault says nothing about now.
            client.is_current = self.faults == client.faults
            self.then(answer)

    def lost(self) -> None:
        """The connection broke: the client finds the coordinator again and repeats itself."""
        client = self.client
        if client.waiting is self:
            client.waiting = None
            client.world.after(RETRY_MS, client.resume)


class Client:
    def __init__(self, world: World, *, cooperative: bool, instance_id: str | None) -> None:
        self.world = world
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.member_id = NO_MEMBER
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.is_alive = True
        self.is_paused = False
        # After a pause or a restart of the broker it may have been replaced without knowing yet.
        self.is_excused = False
        # Since its last sync; it keeps what it owns all the same, and may not share it.
        self.was_overtaken = False
        self.faults = 0
        self.is_current = True
        self.is_joined = False
        self.waiting: Request | None = None
        self.unread: Callable[[], None] | None = None
        self.join()

    def __repr__(self) -> str:
        return f"{self.member_id} owning {sorted(self.owned)} at {self.generation}"

    # Faults

    def crash(self) -> None:
        self.is_alive = False

    def pause(self, duration_ms: int) -> None:
        if self.is_paused:
            return
        self.is_paused = True
        self.excuse()
        self.world.after(duration_ms, self._wake_up)

    def excuse(self) -> None:
        self.is_excused = True
        self.faults += 1

    def overtaken(self) -> None:
        """A join that it gave up on comes after others of it: a leader's begins a generation whose
        answer nobody hears, so that the member learns of it by its next heartbeat."""
        self.was_overtaken = True
        self.faults += 1

    def _wake_up(self) -> None:
        self.is_paused = False
        self.excuse()
        unread, self.unread = self.unread, None
        if unread is not None:
            unread()

    def reconnect(self) -> None:
        """Loses the connection and with it the answer that it waits for."""
        if self.waiting is not None and not self.is_paused:
            self.waiting = None
            self.resume()

    def leave(self) -> None:
        departure = Departure(self.member_id, self.instance_id)
        self.crash()
        if self.member_id != NO_MEMBER:
            self.world.leave(departure)

    # Membership

    def resume(self) -> None:
        if not self.is_alive or self.waiting is not None:
            return
        if self.is_joined:
            self._beat()
        else:
            self.join()

    def join(self) -> None:
        self.is_joined = False
        if not self.cooperative:
            self._own(frozenset())
        protocol = "cooperative" if self.cooperative else "range"
        claim = json.dumps([self.generation, sorted(self.owned)]).encode()
        command = Join(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(MemberProtocol(protocol, subscription("t", user_data=claim)),),
        )
        request = self.waiting = Request(self, self._joined)
        self.world.send(request, lambda: self.world.join(request, command))

    def _joined(self, answer: object) -> None:
        assert isinstance(answer, JoinAnswer)
        if answer.refused is None:
            self.member_id, self.generation = answer.member_id, answer.generation
            is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            self._sync(self._assign(answer) if is_leader else {})
        elif answer.refused is Reason.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        else:
            self._refused(answer.refused)

    def _sync(self, assignments: dict[str, bytes]) -> None:
        command = Sync(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments=assignments,
        )
        request = self.waiting = Request(self, self._synced)
        self.world.send(request, lambda: self.world.sync(request, command))

    def _synced(self, answer: object) -> None:
        assert isinstance(answer, SyncAnswer)
        if answer.refused is not None:
            self._refused(answer.refused)
            return
        assigned = frozenset(json.loads(answer.assignment or b"[]"))
        gave_up = self.owned - assigned
        self.is_excused = self.is_excused and not self.is_current
        self.was_overtaken = self.was_overtaken and not self.is_current
        self.is_joined = True
        self._own(assigned)
        if self.cooperative and gave_up:
            self.join()
        else:
            self.world.after(HEARTBEAT_MS, self._beat)

    def _beat(self) -> None:
        if not self.is_alive or not self.is_joined or self.waiting is not None:
            return
        if self.is_paused:
            self.unread = self._beat
            return
        request = self.waiting = Request(self, self._beaten)
        member_id, generation = self.member_id, self.generation
        self.world.send(request, lambda: self.world.heartbeat(request, member_id, generation))

    def _beaten(self, answer: object) -> None:
        assert answer is None or isinstance(answer, Reason)
        if answer is None:
            self.world.after(HEARTBEAT_MS, self._beat)
        else:
            self._refused(answer)

    def _refused(self, reason: Reason) -> None:
        if reason is Reason.FENCED_INSTANCE_ID:
            assert self.instance_id is not None
            self.crash()
            return
        if reason in (Reason.UNKNOWN_MEMBER_ID, Reason.ILLEGAL_GENERATION):
            is_explained = self.is_excused or self.was_overtaken
            assert is_explained, f"{self} was always there and is told {reason}"
            self._own(frozenset())
            self.generation = -1
        if reason is Reason.UNKNOWN_MEMBER_ID:
            self.member_id = NO_MEMBER
        self.is_joined = False
        self.world.after(RETRY_MS if reason is Reason.NOT_COORDINATOR else 0, self.resume)

    # Assignments

    def _own(self, partitions: frozenset[int]) -> None:
        self.owned = partitions
        self.world.check_owners()

    def _assign(self, answer: JoinAnswer) -> dict[str, bytes]:
        claims = {m.member_id: _claim(m.metadata) for m in answer.members}
        assign = _assign_cooperatively if self.cooperative else _assign_range
        assigned = assign(claims)
        return {str(m): json.dumps(sorted(found)).encode() for m, found in assigned.items()}


Claims = dict[MemberId, tuple[int, frozenset[int]]]
Assigned = dict[MemberId, set[int]]


def _claim(metadata: bytes) -> tuple[int, frozenset[int]]:
    generation, owned = json.loads(metadata[metadata.index(b"[") :])
    return generation, frozenset(owned)


def _assign_range(claims: Claims) -> Assigned:
    members = sorted(claims)
    return {m: set(sorted(PARTITIONS)[n :: len(members)]) for n, m in enumerate(members)}


def _assign_cooperatively(claims: Claims) -> Assigned:
    """Balanced, keeping what members have; what moves is nobody's for one generation."""
    owners: dict[int, MemberId] = {}
    # When two claim one partition, the later generation is right.
    for member_id, (_, owned) in sorted(claims.items(), key=lambda item: item[1][0]):
        owners.update(dict.fromkeys(owned, member_id))
    quota = -(-len(PARTITIONS) // len(claims))
    target: Assigned = {member_id: set() for member_id in claims}
    homeless = []
    for partition in sorted(PARTITIONS):
        owner = owners.get(partition)
        if owner is not None and len(target[owner]) < quota:
            target[owner].add(partition)
        else:
            homeless.append(partition)
    for partition in homeless:
        poorest = min(sorted(target), key=lambda member_id: len(target[member_id]))
        # It goes to its new owner in the next generation, once the old one has given it up.
        if owners.get(partition) in (None, poorest):
            target[poorest].add(partition)
    return target
