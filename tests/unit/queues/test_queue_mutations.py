"""Proves that the naive queue notices bugs of the real one: each is easy to write."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.model.errors import Refused
from penstock.queues import delivery, key_order, machine, ranges, settling, transitions
from penstock.queues.commands import Change, Death, Range, RecordState, ShareSettings
from penstock.queues.delivery import Delivery
from penstock.queues.key_order import KeyOrder
from penstock.queues.machine import ShareMachine
from penstock.queues.ranges import RangeMap
from penstock.queues.settling import Claim, Outcome
from penstock.queues.transitions import Event
from tests.unit.queues.simulation import check_seed

# As many as test_model.py runs.
SEEDS_MAX = 200

MUTATIONS: dict[str, list[tuple[object, str, Any]]] = {}


def mutation(name: str, *places: tuple[object, str]) -> Callable[[Any], Any]:
    def add(replacement: Any) -> Any:
        MUTATIONS[name] = [(target, attribute, replacement) for target, attribute in places]
        return replacement

    return add


_after = transitions.after
_AFTER = ((machine, "after"), (delivery, "after"), (settling, "after"))
_decide_acquire = ShareMachine.decide_acquire


_FOREVER = ShareSettings(delivery_attempts_max=1000)


def _except(wrong: Callable[[Range, Event, ShareSettings], Range | None]) -> Callable[..., Range]:
    """The table of transitions, with one row that is wrong."""

    def mutated(before: Range, event: Event, settings: ShareSettings, *, due_ms: int = 0) -> Range:
        instead = wrong(before, event, settings)
        return _after(before, event, settings, due_ms=due_ms) if instead is None else instead

    return mutated


@mutation("a released record is never dead", *_AFTER)
@_except
def released_forever(before: Range, event: Event, _: ShareSettings) -> Range | None:
    return _after(before, event, _FOREVER) if event is Event.RELEASE else None


@mutation("a lease that runs out never kills", *_AFTER)
@_except
def expired_forever(before: Range, event: Event, _: ShareSettings) -> Range | None:
    return _after(before, event, _FOREVER) if event is Event.EXPIRE else None


@mutation("a record dies one attempt early", *_AFTER)
@_except
def dies_early(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    if event not in (Event.RELEASE, Event.EXPIRE, Event.CLOSE):
        return None
    early = replace(settings, delivery_attempts_max=settings.delivery_attempts_max - 1)
    return _after(before, event, early)


@mutation("a closed session gives the attempt back", *_AFTER)
@_except
def forgives_closed(before: Range, event: Event, _: ShareSettings) -> Range | None:
    if event is not Event.CLOSE:
        return None
    return _after(before, event, _FOREVER)._replace(attempts=before.attempts - 1)


@mutation("a delivery does not count", *_AFTER)
@_except
def uncounted(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    if event is not Event.LEASE:
        return None
    return _after(before, event, settings)._replace(attempts=max(1, before.attempts))


@mutation("a rejected record is taken as processed", *_AFTER)
@_except
def rejected_is_acked(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    return _after(before, Event.ACCEPT, settings) if event is Event.REJECT else None


@mutation("what is given up is dead before the dead-letter topic has it", *_AFTER)
@_except
def dying_skipped(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    if event is Event.POSTPONE:
        return None
    return _after(before, event, replace(settings, has_dead_letters=False))


@mutation("a rejected record seems to have been tried too often", *_AFTER)
@_except
def wrong_death(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    result = _after(before, event, settings) if event is Event.REJECT else None
    return result and result._replace(death=Death.TRIED_TOO_OFTEN if result.death else Death.NONE)


@mutation("a record that is given back for later is there at once", *_AFTER)
@_except
def not_postponed(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    is_given_back = event is Event.POSTPONE and before.state is RecordState.LEASED
    return _after(before, Event.RELEASE, settings) if is_given_back else None


@mutation("a delayed record is due too early", (RangeMap, "due"))
def due_early(self: RangeMap, now_ms: int) -> Any:
    return [each for each in self if each.due_ms and each.due_ms <= now_ms + 1]


@mutation("records that are not dying can be buried", (ShareMachine, "decide_buried"))
def buried_alive(self: ShareMachine, offsets: Any, _: Any) -> Change:
    found = [each for at in offsets for each in self._ranges.between(max(at, self.start), at)]
    return self.change_of(
        [Range(each.first, each.last, RecordState.DEAD, each.attempts) for each in found]
    )


@mutation("another member's lease can be acked", (ShareMachine, "_acknowledged"))
def anybodys(self: ShareMachine, _: Any, batch: Any, settings: Any) -> Any:
    for first, last, kind in machine._runs(batch):
        for each in self._ranges.between(max(first, self.start), last):
            if each.state is not RecordState.LEASED:
                raise Refused(machine.Reason.INVALID_RECORD_STATE)
            yield each, machine.EVENTS[kind]


@mutation("a batch past the end is an invalid state", (ShareMachine, "_check_place"))
def unplaced(self: ShareMachine, batch: Any, last_done: int) -> None:
    if batch.last >= self.end or max(batch.first, self.start) <= last_done:
        raise Refused(machine.Reason.INVALID_RECORD_STATE)


@mutation("an offset can be acked twice in one request", (ShareMachine, "_check_place"))
def twice(self: ShareMachine, batch: Any, _: int) -> None:
    if self.start == self.end:
        raise Refused(machine.Reason.INVALID_RECORD_STATE)
    if batch.last >= self.end:
        raise Refused(machine.Reason.INVALID_REQUEST)


@mutation("the form of an acknowledgement is not checked", (machine, "_check_form"))
def formless(_: object) -> None:
    pass


@mutation("an expiry does not look at the attempt", (ShareMachine, "decide_expiry"))
def any_attempt(self: ShareMachine, leases: Any, settings: Any) -> Change:
    changed = {
        each.first: _after(each, Event.EXPIRE, settings)
        for lease in leases
        for each in self._ranges.between(max(lease.first, self.start), lease.last)
        if each.state is RecordState.LEASED and each.member_id == lease.member_id
    }
    return self.change_of([changed[first] for first in changed])


@mutation("the start stays behind what was done before", (ShareMachine, "_behind_done"))
def stays(self: ShareMachine, offset: int, _: int) -> int:
    return offset


@mutation("the start jumps to the end", (ShareMachine, "_start_after"))
def jumps(self: ShareMachine, changed: Any) -> int:
    done = all(each.state in ranges.DONE for each in changed)
    return self.end if changed and done else self.start


@mutation("what compaction removed blocks the start", (ShareMachine, "_vanished"))
def never_vanishes(*_: object) -> list[Range]:
    return []


_vanished = ShareMachine._vanished


@mutation("what vanished is not noticed before the first batch", (ShareMachine, "_vanished"))
def only_between(self: ShareMachine, spans: Any, _: Any, settings: Any) -> Any:
    return _vanished(self, spans, None, settings)


@mutation(
    "a log start in the middle of what is done stays there", (ShareMachine, "decide_log_start")
)
def inside_done(self: ShareMachine, log_start: int) -> Change:
    return Change(start=max(self.start, log_start))


@mutation("a closed session forgets a range", (RangeMap, "leases_of"))
def forgets_one(self: RangeMap, member_id: Any) -> list[Range]:
    return [self._by_first[first] for first in sorted(self._by_member.get(member_id, ()))][:1]


@mutation("equal neighbours are not joined", (ranges, "_is_alike"))
def never_alike(*_: object) -> bool:
    return False


@mutation("neighbours are joined whatever their attempts", (ranges, "_is_alike"))
def alike_by_state(one: Range, other: Range) -> bool:
    return one.state is other.state and one.member_id == other.member_id


@mutation("no record is suspicious", (delivery, "throttled_from"))
def never_throttled(_: int) -> int:
    return 1000


@mutation("the last attempt does not go out alone", (delivery, "is_last_attempt"))
def never_last(*_: int) -> bool:
    return False


_choose = Delivery.choose


@mutation("redeliveries do not count against the limit of leases", (Delivery, "choose"))
def roomy(self: Delivery, spans: Any) -> None:
    self._room += self._ranges.leased_count
    _choose(self, spans)


@mutation("what is done behind a slow record has no limit", (Delivery, "choose"))
def endless(self: Delivery, spans: Any) -> None:
    waiting, self._ranges.waiting_count = self._ranges.waiting_count, -1000
    _choose(self, spans)
    self._ranges.waiting_count = waiting


_deliver = Delivery._deliver


@mutation("an exact number is not kept", (Delivery, "_deliver"))
def inexact(self: Delivery, spans: Any) -> None:
    self._is_exact = False
    _deliver(self, spans)


@mutation("a batch that has begun is forgotten behind the cut", (Delivery, "_deliver"))
def forgotten_rest(self: Delivery, spans: Any) -> None:
    _deliver(self, spans)
    if self.changed and self.changed[-1].state is RecordState.AVAILABLE:
        self.changed.pop()


_decide_look = ShareMachine.decide_look


@mutation("what its producer wants later is there at once", (ShareMachine, "decide_look"))
def never_later(self: ShareMachine, spans: Any, _: Any, settings: Any) -> Change:
    return _decide_look(self, spans, [], settings)


@mutation("only the first record of a batch can be for later", (ShareMachine, "decide_look"))
def first_later(self: ShareMachine, spans: Any, later: Any, settings: Any) -> Change:
    return _decide_look(self, spans, later[:1], settings)


@mutation("a delay is lost in a snapshot", (ShareMachine, "ranges"))
def undelayed(self: ShareMachine) -> Any:
    for each in self._ranges:
        is_delayed = each.state is RecordState.DELAYED
        yield each._replace(state=RecordState.AVAILABLE, due_ms=0) if is_delayed else each


@mutation("how far it looks past blocked keys has no limit", (machine, "has_space"))
def endless_look(ranges_: RangeMap, settings: ShareSettings) -> bool:
    return ranges_.waiting_count + ranges_.delayed_count < settings.waiting_max


@mutation("records that are for later take no space", (machine, "has_space"))
def weightless(ranges_: RangeMap, settings: ShareSettings) -> bool:
    is_full = ranges_.waiting_count >= settings.waiting_max
    return not is_full and ranges_.blocked_count < settings.blocked_max


@mutation("no record waits for its key", (KeyOrder, "_blocked"))
def unblocked(*_: object) -> list[Any]:
    return []


_blocked = KeyOrder._blocked


@mutation("a record that was tried does not wait for its key", (KeyOrder, "_blocked"))
def tried_goes_first(self: KeyOrder, each: Range) -> list[Any]:
    return [] if each.attempts else list(_blocked(self, each))


@mutation("a key that is free lets nobody go", (KeyOrder, "_next"))
def stuck(*_: object) -> None:
    return None


@mutation("a key lets its last record go", (KeyOrder, "_next"))
def last_first(self: KeyOrder, key: int) -> Any:
    line = self._lines[key]
    return line if isinstance(line, int) else line[-1]


@mutation("what retention removes frees no key", (KeyOrder, "_below"))
def held_by_ghosts(*_: object) -> list[int]:
    return []


def freeing(name: str, states: set[RecordState]) -> None:
    MUTATIONS[name] = [(key_order, "FREEING", frozenset(states))]


# Tokens

_judged = settling._judged


@mutation("a token is good for every attempt", (settling, "_judged"))
def token_of_any_attempt(claim: Claim, found: Range | None, of: ShareMachine) -> Outcome:
    is_leased = found is not None and found.state is RecordState.LEASED
    if found is not None and is_leased and found.attempts > claim.attempt:
        return Outcome.OK
    return _judged(claim, found, of)


@mutation("a token is good for any record of its poll", (settling, "is_proven"))
def any_record(*_: object) -> bool:
    return True


@mutation("leases of members can be settled by tokens", (settling, "is_door_member"))
def any_member(_: object) -> bool:
    return True


@mutation("a delivery that was undone counts", *_AFTER)
@_except
def undone_counts(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    return _after(before, Event.CLOSE, settings) if event is Event.UNDO else None


@mutation("a purge takes what others have", (ShareMachine, "decide_purged"))
def purges_all(self: ShareMachine, end: int, settings: ShareSettings) -> Change:
    last = max(end, self.end) - 1
    gone = [Range(self.start, last, RecordState.ACKED, 0)] if last >= self.start else []
    return self.change_of(gone)


@mutation("a record expires in somebody's hands", (ShareMachine, "decide_outdated"))
def expires_leased(self: ShareMachine, spans: Any, settings: ShareSettings) -> Any:
    found = [each for first, last in spans for each in self._ranges.between(first, last)]
    alive = [each for each in found if each.state in (RecordState.AVAILABLE, RecordState.LEASED)]
    dead = [Range(each.first, each.last, RecordState.DEAD, each.attempts) for each in alive]
    return self.change_of(dead), sum(each.last - each.first + 1 for each in dead)


@mutation("an expired record seems to have been tried too often", *_AFTER)
@_except
def wrong_expiry(before: Range, event: Event, settings: ShareSettings) -> Range | None:
    result = _after(before, event, settings) if event is Event.OUTDATE else None
    return result and result._replace(death=Death.TRIED_TOO_OFTEN if result.death else Death.NONE)


@mutation("a poll's lease has the group's time", (ShareMachine, "decide_acquire"))
def one_time_for_all(self: ShareMachine, *args: Any, settings: ShareSettings, **kwargs: Any) -> Any:
    return _decide_acquire(self, *args, settings=replace(settings, lease_ms=100), **kwargs)


_FREEING = {RecordState.ACKED, RecordState.DYING, RecordState.DEAD}
freeing("a delayed record frees its key", _FREEING | {RecordState.DELAYED})
freeing("a leased record frees its key", _FREEING | {RecordState.LEASED})
freeing("a dying record holds up its key", _FREEING - {RecordState.DYING})
freeing("a dead record holds up its key", _FREEING - {RecordState.DEAD})


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in MUTATIONS[name]:
        monkeypatch.setattr(*place)
    with pytest.raises(AssertionError):
        _hunt()


def _hunt() -> None:
    for seed in range(SEEDS_MAX):
        check_seed(seed)
