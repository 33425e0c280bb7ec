"""Random commands to a share partition, beside a naive one that must always agree with it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Protocol, TypeVar
from uuid import UUID

from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId, TopicId
from penstock.model.lease_tokens import proof_of
from penstock.queues.commands import (
    AckBatch,
    AcquiredRange,
    Change,
    Later,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.key_order import KeyOrder, has_place
from penstock.queues.letters import Redriven
from penstock.queues.machine import ShareMachine
from penstock.queues.settling import Claim, Outcome, Verb, decide_settled
from tests.unit.queues.naive_queue import (
    ACKED,
    DEAD,
    DELAYED,
    DYING,
    LEASED,
    Entry,
    NaiveQueue,
)

MEMBERS = [MemberId(name) for name in ("ann", "bob", "cid")]
DOOR_MEMBERS = [MemberId(name) for name in ("door:dan", "door:eve")]
DLQ = TopicId(UUID(int=9))
STEPS = 60
T = TypeVar("T")


class Choices(Protocol):
    """What is used of `random.Random`: hypothesis has one that it can shrink."""

    def randint(self, a: int, b: int) -> int: ...
    def random(self) -> float: ...


class Simulation:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        limit = choices.randint(1, 6)
        self.settings = ShareSettings(
            lease_ms=100,
            delivery_attempts_max=limit,
            leased_max=choices.randint(1, 30),
            waiting_max=choices.randint(1, 40),
            blocked_max=choices.randint(1, 40),
            is_renewable=self.maybe(0.8),
            has_dead_letters=self.maybe(0.5),
            has_delays=self.maybe(0.3),
            has_key_order=self.maybe(0.4),
        )
        self.members = MEMBERS
        self.of_doors: list[tuple[int, Callable[[], None]]] = []
        if self.maybe(0.5):
            self.members = [*MEMBERS, *DOOR_MEMBERS]
            self.of_doors = [(6, self.settle), (1, self.undo), (1, self.purge), (1, self.outdate)]
            self.settings = replace(self.settings, keeps_expired=self.maybe(0.5))
        self.now_ms = 1
        self.naive = NaiveQueue(self.settings)
        self.machine = ShareMachine(start=0)
        # Hears only of changes, as who stores them does.
        self.store = ShareMachine(start=0)
        self.order = KeyOrder(0) if self.settings.has_key_order else None
        # What is in the log, for those who look: keys of records, and when they are due.
        self.keys: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.batches: list[tuple[int, int]] = []
        self.log_end = 0
        # What was dead once and is not alive now.
        self.dead: set[int] = set()
        # Every lease that was ever given: some are over by now.
        self.given: list[Range] = []

    def maybe(self, probability: float) -> bool:
        return self.choices.random() < probability

    def one_of(self, options: list[T]) -> T:
        return options[self.choices.randint(0, len(options) - 1)]

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (3, self.append),
            (8, self.acquire),
            (8, self.acknowledge),
            (2, self.expire),
            (2, self.pass_time),
            (2, self.bury),
            (2, self.reopen),
            (1, self.release),
            (1, self.move_log_start),
            (1, self.compact),
            (1, self.restore),
            (1, self.switch_order),
            *self.of_doors,
        ]
        self.one_of([action for weight, action in steps for _ in range(weight)])()
        self.check()

    def append(self) -> None:
        for _ in range(self.choices.randint(1, 4)):
            # Control batches take offsets and are not among the batches that are read.
            self.log_end += self.maybe(0.1)
            last = self.log_end + self.choices.randint(0, 6)
            self.batches.append((self.log_end, last))
            for offset in range(self.log_end, last + 1):
                self.write(offset)
            self.log_end = last + 1

    def write(self, offset: int) -> None:
        if self.maybe(0.8):
            self.keys[offset] = self.choices.randint(1, 4)
        if self.maybe(0.3):
            self.due[offset] = self.now_ms + self.choices.randint(1, 9)

    @property
    def must_look(self) -> bool:
        return self.settings.has_delays or self.settings.has_key_order

    def look(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """What a poll does before it leases; what is left out of the spans is not known yet."""
        machine = self.machine
        known = [span for span in spans if span[1] < machine.end]
        new = [span for span in spans if span[1] >= machine.end]
        assert machine.has_space(self.settings) == self.naive.has_space()
        if not machine.has_space(self.settings):
            return known
        new = new[: self.choices.randint(1, 3)]
        due = self.due if self.settings.has_delays else {}
        due = {offset: due_ms for offset, due_ms in due.items() if due_ms > self.now_ms}
        offsets = [at for first, last in new for at in range(max(first, machine.end), last + 1)]
        later = [Later(at, at, due[at]) for at in offsets if at in due]
        keys = {at: self.keys[at] for at in offsets if at in self.keys and self.order is not None}
        if self.order is not None:
            self.order.add(keys.items())
        self.apply(machine.decide_look(new, later, self.settings))
        self.naive.look(new, due, keys)
        return [*known, *new]

    def acquire(self) -> None:
        read_from = self.machine.first_available()
        count = self.choices.randint(1, 6)
        spans = [span for span in self.batches if span[1] >= read_from][:count]
        if self.must_look:
            spans = self.look(spans)
        member_id = self.one_of(self.members)
        records_max, batch_size = self.choices.randint(1, 20), self.choices.randint(1, 12)
        is_exact = self.maybe(0.4)
        lease_ms = self.choices.randint(50, 60) if self.of_doors and self.maybe(0.5) else 100
        settings = replace(self.settings, lease_ms=lease_ms)
        change, acquired = self.machine.decide_acquire(
            member_id,
            spans,
            records_max=records_max,
            batch_size=batch_size,
            is_exact=is_exact,
            settings=settings,
            read_from=read_from,
        )
        self.apply(change)
        expected = self.naive.acquire(
            member_id, spans, read_from, records_max, batch_size, is_exact, lease_ms
        )
        assert list(acquired) == expected, f"got {acquired}, not {expected}"
        self.given += [_lease(one, member_id, settings) for one in acquired]

    def acknowledge(self) -> None:
        member_id = self.one_of(self.members)
        batches = self.some_batches(member_id)
        due_ms = self.now_ms + self.choices.randint(1, 9) if self.maybe(0.4) else 0
        expected = self.naive.acknowledge(member_id, batches, due_ms)
        reason, change, renewed = self.decide_acknowledge(member_id, batches, due_ms)
        assert reason is expected, f"refused by {reason}, not by {expected}: {batches}"
        if reason is None:
            is_renewing = any(4 in batch.types for batch in batches)
            assert renewed or not is_renewing or self.is_past(batches)
            self.apply(change)

    def decide_acknowledge(
        self, member_id: MemberId, batches: list[AckBatch], due_ms: int
    ) -> tuple[Reason | None, Change, tuple[Range, ...]]:
        try:
            return None, *self.machine.decide_acknowledge(
                member_id, batches, self.settings, lambda _: due_ms
            )
        except Refused as refused:
            return refused.reason, Change(start=self.machine.start), ()

    def is_past(self, batches: list[AckBatch]) -> bool:
        renewing = [batch for batch in batches if 4 in batch.types]
        return all(batch.first < self.machine.start for batch in renewing)

    def some_batches(self, member_id: MemberId) -> list[AckBatch]:
        mine = sorted(
            offset for offset, each in self.naive.entries.items() if each.member_id == member_id
        )
        if not mine or self.maybe(0.1):
            first = self.choices.randint(max(0, self.naive.start - 3), self.naive.end + 2)
            return [self.batch(first, first + self.choices.randint(-1, 3))]
        batches = []
        at = self.choices.randint(0, len(mine) - 1)
        for _ in range(self.choices.randint(1, 3)):
            upto = at + self.choices.randint(0, 5)
            run = [offset for offset in mine[at : upto + 1] if offset - mine[at] <= upto - at]
            if run:
                batches.append(self.batch(run[0], run[-1] + (1 if self.maybe(0.05) else 0)))
            at = upto + (0 if self.maybe(0.05) else 1)
            if at >= len(mine):
                break
        return batches

    def batch(self, first: int, last: int) -> AckBatch:
        count = last - first + 1 if self.maybe(0.4) else 1
        count += 1 if self.maybe(0.03) else 0
        kinds = [0, 1, 1, 1, 2, 2, 2, 3, 4] + ([5] if self.maybe(0.05) else [])
        types = tuple(self.one_of(kinds) for _ in range(count))
        return AckBatch(first=first, last=last, types=types)

    def expire(self) -> None:
        over = [lease for lease in self.given if self.maybe(0.3)]
        self.apply(self.machine.decide_expiry(over, self.settings))
        self.naive.expire(over)

    def release(self) -> None:
        member_id = self.one_of(self.members)
        self.apply(self.machine.decide_release(member_id, self.settings))
        self.naive.release(member_id)

    def settle(self) -> None:
        """By tokens: good ones, old ones, and some that somebody made up."""
        verb = self.one_of(list(Verb))
        claims = [self.claim() for _ in range(self.choices.randint(1, 6))]
        claims += claims[:1] if self.maybe(0.2) else []
        lease_ms = self.choices.randint(50, 60)
        due_ms = self.now_ms + self.choices.randint(1, 9) if self.maybe(0.4) else 0
        settled = decide_settled(
            self.machine,
            verb,
            claims,
            self.settings,
            lease_ms=lease_ms,
            due_after=lambda _: due_ms,
        )
        expected = self.naive.settle(verb, claims, lease_ms, due_ms)
        assert list(settled.outcomes) == expected, f"{claims}: {settled.outcomes}, not {expected}"
        is_extending = verb is Verb.EXTEND and Outcome.OK in expected
        assert bool(settled.extended) == is_extending
        self.apply(settled.change)

    def claim(self) -> Claim:
        if not self.given or self.maybe(0.1):
            offset = self.choices.randint(max(0, self.naive.start - 2), self.naive.end + 2)
            lease = Range(offset, offset, LEASED, self.choices.randint(0, 3), DOOR_MEMBERS[0])
        else:
            lease = self.given[-self.choices.randint(1, min(len(self.given), 6))]
        offset = self.choices.randint(lease.first, lease.last)
        assert lease.member_id is not None
        member_id = self.one_of(self.members) if self.maybe(0.1) else lease.member_id
        attempt = lease.attempts + (1 if self.maybe(0.05) else 0)
        return Claim(offset, attempt, proof_of(member_id, offset, attempt))

    def undo(self) -> None:
        member_id = self.one_of(self.members)
        acquired = None
        if self.maybe(0.5):
            leases = [lease for lease in self.given if self.maybe(0.3)]
            acquired = [AcquiredRange(each.first, each.last, each.attempts) for each in leases]
        self.apply(self.machine.decide_undone(member_id, self.settings, acquired))
        self.naive.undo(member_id, acquired)

    def outdate(self) -> None:
        some = [(first, last) for first, last in self.batches if self.maybe(0.2)]
        spans = [(max(first, self.naive.start), last) for first, last in some]
        spans = [span for span in spans if span[0] <= span[1] < self.naive.end]
        change, count = self.machine.decide_outdated(spans, self.settings)
        self.apply(change)
        assert count == self.naive.outdate(spans)

    def purge(self) -> None:
        end = self.choices.randint(self.naive.start, max(self.naive.start, self.log_end))
        self.apply(self.machine.decide_purged(end, self.settings))
        self.naive.purge(end)

    def pass_time(self) -> None:
        self.now_ms += self.choices.randint(0, 6)
        self._make_due(self.machine)
        self.naive.pass_time(self.now_ms)

    def _make_due(self, machine: ShareMachine) -> None:
        """Not stored: it follows from the times that are."""
        change = machine.decide_due(self.now_ms, self.settings)
        machine.apply(change)
        if machine is self.machine:
            self.follow(change)

    def bury(self) -> None:
        dying = (range(each.first, each.last + 1) for each in self.machine.dying())
        offsets = [at for each in dying for at in each if self.maybe(0.5)]
        offsets += [self.choices.randint(0, self.naive.end)]
        offsets = sorted(set(offsets))
        self.apply(self.machine.decide_buried(offsets, self.settings))
        self.naive.bury(offsets)

    def reopen(self) -> None:
        """Of what is known to be dead, and of what is not below the start anything."""
        start, end = self.naive.start, self.naive.end
        some = {offset for offset in range(start, end + 2) if self.maybe(0.2)}
        some |= {offset for offset in self.dead if offset < start and self.maybe(0.2)}
        redrives = {offset: self.choices.randint(0, 3) for offset in some}
        state = self.machine.letters.redriven_to(Redriven(DLQ, 0, len(some)), 0)
        change, count = self.machine.decide_reopened(redrives, self.settings, state)
        self.apply(change)
        assert count == self.naive.reopen(redrives)
        assert self.store.letters == state

    def move_log_start(self) -> None:
        log_start = self.naive.start + self.choices.randint(-2, 8)
        log_start = max(0, min(log_start, self.log_end))
        lost = self.machine.lost_below(log_start)
        lost_before = self.naive.lost
        self.apply(self.machine.decide_log_start(log_start))
        self.naive.move_log_start(log_start)
        self.batches = [span for span in self.batches if span[1] >= log_start]
        assert lost == self.naive.lost - lost_before, "lost records are miscounted"

    def compact(self) -> None:
        self.batches = [span for span in self.batches if not self.maybe(0.1)]

    def restore(self) -> None:
        """Another leader takes over: it has what is stored, and the log."""
        self.machine = machine = self.copy_of_store()
        if self.order is None:
            return
        self.order = KeyOrder(machine.start)
        for each in machine.ranges():
            if has_place(each):
                offsets = range(each.first, each.last + 1)
                self.order.add((at, self.keys[at]) for at in offsets if at in self.keys)
        self.follow(Change(start=machine.start, ranges=tuple(machine.ranges())))

    def switch_order(self) -> None:
        """Whoever leads begins again when the setting changes."""
        has_order = not self.settings.has_key_order
        self.settings = replace(self.settings, has_key_order=has_order)
        self.naive.settings = self.settings
        entries = self.naive.entries
        known = {
            at: key for at, key in self.keys.items() if at in entries and not entries[at].redrives
        }
        self.naive.keys = known if has_order else {}
        self.order = KeyOrder(0) if has_order else None
        self.restore()

    def follow(self, change: Change) -> None:
        if self.order is not None:
            machine = self.machine
            machine.apply(self.order.follow(change, machine, self.settings))

    def copy_of_store(self) -> ShareMachine:
        copy = ShareMachine(
            start=self.store.start, ranges=self.store.ranges(), letters=self.store.letters
        )
        self._make_due(copy)
        return copy

    def apply(self, change: Change) -> None:
        known = _entries(self.machine)
        for each in change.ranges:
            is_letter = each.state in (DYING, DEAD)
            assert each.first >= change.start or is_letter, f"{each} is below the start"
            for offset in range(max(each.first, self.machine.start), each.last + 1):
                is_news = known.get(offset) != Entry(*each[2:])
                assert is_news, f"{each} says what was known of {offset}"
        is_news = self.machine.is_news(change)
        before = self.machine.start, list(self.machine.ranges())
        self.machine.apply(change)
        self.store.apply(change)
        is_changed = before != (self.machine.start, list(self.machine.ranges()))
        self.follow(change)
        assert is_news == (is_changed or change.letters is not None)

    def note_dead(self) -> None:
        entries = {**self.naive.left, **self.naive.entries}
        self.dead |= {offset for offset, each in entries.items() if each.state in (DYING, DEAD)}
        self.dead -= {offset for offset, each in entries.items() if each.state not in (DYING, DEAD)}

    def check(self) -> None:
        self.note_dead()
        self.store.validate()
        for machine in (self.machine, self.copy_of_store()):
            machine.validate()
            assert _entries(machine) == {**self.naive.left, **self.naive.entries}
            is_leader = machine is self.machine
            blocked = [
                at
                for each in machine.ranges()
                if each.state is RecordState.BLOCKED
                for at in range(each.first, each.last + 1)
            ]
            expected = [at for at in self.naive.entries if self.naive.is_waiting(at)]
            assert blocked == (expected if is_leader else []), f"{blocked}, not {expected}"
            for before, each in pairwise(machine.ranges()):
                is_apart = before.last + 1 < each.first <= machine.start
                assert is_apart or before[2:] != each[2:], f"{before} and {each} are alike"
            assert (machine.start, machine.end) == (self.naive.start, self.naive.end)
        machine = self.machine
        assert machine.first_available() == self.naive.first_available()
        assert machine.leased_count == self.naive.count(LEASED)
        assert machine.done_count == self.naive.count(ACKED, DEAD, DYING)
        assert machine.delayed_count == self.naive.count(DELAYED)
        assert machine.dying_count == self.naive.count(DYING) + len(self.naive.left)
        due = (each.due_ms for each in self.naive.entries.values() if each.due_ms)
        assert machine.next_due_ms() == min(due, default=None)
        leases = sum(each.last - each.first + 1 for each in machine.leases())
        assert leases == machine.leased_count


def _entries(machine: ShareMachine) -> dict[int, Entry]:
    """What is stored of them, or would be: that a record waits for another follows from the log."""
    return {
        offset: Entry(_stored(each.state), *each[3:])
        for each in machine.ranges()
        for offset in range(each.first, each.last + 1)
    }


def _stored(state: RecordState) -> RecordState:
    return RecordState.AVAILABLE if state is RecordState.BLOCKED else state


def _lease(one: AcquiredRange, member_id: MemberId, settings: ShareSettings) -> Range:
    return Range(one.first, one.last, LEASED, one.attempt, member_id, settings.lease_ms)


def check_run(choices: Choices, steps: int = STEPS) -> None:
    simulation = Simulation(choices)
    for _ in range(steps):
        simulation.step()


def check_seed(seed: int) -> None:
    check_run(Random(seed))
