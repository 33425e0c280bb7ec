"""Bugs to inject into queues: what runs of nodes with workers of a share group must notice.

The docstring of each says which rule it breaks. What one queue does alone has mutations of its own
(`tests/unit/queues/test_queue_mutations.py`): these need a log, failures and more than one node.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from penstock.broker import queue_reads
from penstock.broker.dead_letters import DeadLetters
from penstock.broker.letter_carrier import Carrier
from penstock.broker.queue_settings import SettingsOfQueues
from penstock.broker.queues import Queues
from penstock.cluster.topic import Topic
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, MemberId, Offset, TopicId
from penstock.queues import dead_letters, decisions, looking
from penstock.queues.commands import (
    AckBatch,
    AcquiredRange,
    Change,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.coordinator import ShareCoordinator
from penstock.queues.decisions import Write
from penstock.queues.key_order import KeyAt
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue, Span
from penstock.queues.leases import LeaseDeadlines
from penstock.queues.letters import LetterState, Plan, Redriven, Sender
from penstock.queues.machine import ShareMachine
from penstock.queues.records import UNRESOLVED, QueueStored
from penstock.queues.state import Queue, QueuesState
from penstock.queues.storing import Storing
from penstock.replication.commit import Commit
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add
Outdated = tuple[Change, int]


def _settled() -> Commit:
    commit = Commit()
    commit.settle(None)
    return commit


# Leaders of data partitions


@mutation("a leader asks nobody before it refuses an acknowledgement", (LedQueue, "confirm"))
async def refuses_alone(self: LedQueue) -> None:
    """The next leader may have leased what this one knows nothing of."""


@mutation("a leader asks nobody before it renews a lease", (Storing, "confirmed"))
def renews_alone(self: Storing, confirm: object) -> Commit:
    """The next leader may have given the record to somebody else."""
    return self.last_commit()


_acquire = LedQueue.acquire
_submit = LedQueue._submit
_acknowledge = LedQueue.acknowledge
_release = LedQueue.release


@mutation("records leave before their lease is stored", (LedQueue, "acquire"))
def leases_later(
    self: LedQueue, *args: Any, **kwargs: Any
) -> tuple[tuple[AcquiredRange, ...], Commit]:
    """A leader that fails takes leases with it that nobody else knows of."""
    acquired, _ = _acquire(self, *args, **kwargs)
    return acquired, _settled()


@mutation("leases are only in memory", (LedQueue, "_submit"))
def leases_in_memory(self: LedQueue, change: Change) -> Commit:
    """The next leader would give the same records to others."""
    commit = _submit(self, change)
    if self._storing.pending and self._storing.pending[-1] is change:
        self._storing.pending[-1] = replace(change, ranges=tuple(map(_unleased, change.ranges)))
    return commit


def _unleased(each: Range) -> Range:
    is_leased = each.state is RecordState.LEASED
    free = Range(each.first, each.last, RecordState.AVAILABLE, each.attempts - 1)
    return free if is_leased else each


@mutation("an ack is answered before it is stored", (LedQueue, "acknowledge"))
def answers_early(self: LedQueue, member_id: MemberId, batches: Sequence[AckBatch]) -> Commit:
    """What was acked is never delivered again, whatever happens to the leader."""
    _acknowledge(self, member_id, batches)
    return _settled()


@mutation("a change whose fate is unknown is taken as not made", (LedQueue, "_void"))
def takes_unknown_as_failed(self: LedQueue, refused: Refused, level: int = 0) -> None:
    """It may have been stored, so only the stored queue says what is true."""
    self._storing.void(refused)


@mutation("what was read for one opening is leased in the next", (LedQueue, "_check_opening"))
def leases_anything(self: LedQueue, opening: int) -> None:
    """The stored queue may know less: what lies before would be done, and nobody had it."""


@mutation("the start of a queue is found out twice", (LedQueue, "_take_over"))
async def resolves_twice(self: LedQueue, stored: QueueStored) -> Change:
    """Where a queue begins is settled once: the log's end is another one later on."""
    start = stored.whole.start
    if start == UNRESOLVED:
        start = await self._resolve_start()
    return replace(stored.whole, start=start)


@mutation("leases of another leader never end", (LedQueue, "_lease_again"))
def leases_forever(self: LedQueue, leases: Sequence[Range]) -> None:
    """A worker that died with its leader must not keep its records."""


@mutation("leases end with their leader", (LedQueue, "_lease_again"))
def leases_forgotten(self: LedQueue, leases: Sequence[Range]) -> None:
    """A worker has its records until their time is over."""
    self._deadlines.add(list(leases), self.clock.monotonic())
    self._set_alarm()


@mutation("leases end by the clock on the wall", (LedQueue, "_leased"))
def wall_clock(
    self: LedQueue,
    again: Sequence[Range],
    new: Sequence[Range],
    lease_ms: int,
    refused: Refused | None,
) -> None:
    """Clocks are set; time goes on."""
    if refused is None and self._machine is not None:
        offset_s = self.clock.now_ms() / 1000 % 3600 - self.clock.monotonic() % 3600
        at = self.clock.monotonic() + lease_ms / 1000 + offset_s
        self._deadlines.renew([*again, *new], at)
        self._set_alarm()


@mutation("an old deadline ends a lease that is not stored yet", (LeaseDeadlines, "hold"))
def holds_nothing(self: LeaseDeadlines, leases: Iterable[Range]) -> None:
    """Who has a record has it for the whole of its lease, whatever it had before."""


@mutation("a session that ends gives back what is others'", (LedQueue, "release"))
def releases_all(self: LedQueue, member_id: MemberId) -> Commit:
    """A worker gives back what it has, and nothing else."""
    for other in self._open_machine()._ranges.members():
        _release(self, other)
    return _release(self, member_id)


@mutation("an expired lease is only dropped", (LedQueue, "expire"))
def forgets_expired(self: LedQueue) -> None:
    """What nobody has must come back."""
    self._deadlines.pop_due(self.clock.monotonic())
    self._set_alarm()


@mutation("a renewed lease ends at its old time", (LedQueue, "acknowledge"))
def renews_nothing(self: LedQueue, member_id: MemberId, batches: Sequence[AckBatch]) -> Commit:
    """Who was told that it has more time has it."""
    settings = self._settings_of()
    change, _ = self._open_machine().decide_acknowledge(member_id, batches, settings)
    commit = self._submit(change)
    self._ended_leases()
    return commit


# Delays and the order of keys

_order = LedQueue._order


@mutation("a new leader does not know who waits for whom", (LedQueue, "_order"))
def forgets_keys(self: LedQueue, keys: Iterable[KeyAt] | None) -> None:
    """The order of keys survives the leader: it is in the log."""
    _order(self, None if keys is None else ())


@mutation("what is for later is only known in memory", (LedQueue, "_submit"))
def delays_in_memory(self: LedQueue, change: Change) -> Commit:
    """Who leads next must know when a record is due."""
    commit = _submit(self, change)
    if self._storing.pending and self._storing.pending[-1] is change:
        self._storing.pending[-1] = replace(change, ranges=tuple(map(_undelayed, change.ranges)))
    return commit


def _undelayed(each: Range) -> Range:
    is_delayed = each.state is RecordState.DELAYED
    return each._replace(state=RecordState.AVAILABLE, due_ms=0) if is_delayed else each


@mutation("what is for later is there a second early", (LedQueue, "make_due"))
def due_early(self: LedQueue) -> None:
    """Nothing is delivered before its time."""
    if self._machine is not None:
        now_ms = self.clock.now_ms() + 1_000
        self._apply(self._machine.decide_due(now_ms, self._settings_of()))
        self._set_due_alarm()


@mutation("nobody is woken when a record is due", (LedQueue, "_set_due_alarm"))
def sleeps_on(self: LedQueue) -> None:
    """What is due is delivered, without another record that comes in."""


# Expiry

_decide_outdated = ShareMachine.decide_outdated
_expired_in = looking.expired_in


@mutation("a record that is too old is delivered", (ShareMachine, "decide_outdated"))
def delivers_old(self: ShareMachine, spans: Iterable[Span], settings: ShareSettings) -> Outdated:
    """What has expired is given up when it would be delivered."""
    return Change(start=self.start), 0


@mutation("what is too old is delivered when its key is free", (ShareMachine, "decide_outdated"))
def delivers_next_of_key(
    self: ShareMachine, spans: Iterable[Span], settings: ShareSettings
) -> Outdated:
    """Of one key all may be too old, and the first of them frees the next."""
    free = [
        (each.first, each.last)
        for first, last in spans
        for each in self._ranges.available_between(first, last)
    ]
    return _decide_outdated(self, free, settings)


@mutation("a record expires in somebody's hands", (ShareMachine, "decide_outdated"))
def takes_from_members(
    self: ShareMachine, spans: Iterable[Span], settings: ShareSettings
) -> Outdated:
    """Who has a record may finish it."""
    change, count = _decide_outdated(self, spans, settings)
    taken = [
        Range(each.first, each.last, RecordState.DEAD, each.attempts)
        for first, last in spans
        for each in self._ranges.between(first, last)
        if each.state is RecordState.LEASED
    ]
    return self.change_of([*change.ranges, *taken]), count


@mutation("the group's time to live comes before the record's", (queue_reads, "expired_in"))
def ignores_own_time(
    found: Any, batches: Any, *, now_ms: int, settings: ShareSettings
) -> list[Span]:
    """What a producer says of its record counts."""
    with patch.object(looking, "EXPIRE_AFTER", b"nothing.has.this"):
        return _expired_in(found, batches, now_ms=now_ms, settings=settings)


# Pauses

_new = Queues._new


@mutation("a paused queue delivers", (LedQueue, "has_news"))
@property
def has_news_anyway(self: LedQueue) -> bool:
    """Polls find it empty."""
    machine = self._machine
    return (
        machine is not None
        and machine.first_available() < self.log.high_watermark
        and machine.has_room(self._settings_of())
    )


@mutation("a pause of one topic is one of all", (SettingsOfQueues, "is_paused"))
def pauses_all(self: SettingsOfQueues, group_id: GroupId, topic: str) -> bool:
    """A group is paused topic by topic."""
    return True


@mutation("a queue keeps the settings that it was opened with", (Queues, "_new"))
def keeps_settings(self: Queues, key: QueueKey, replica: Any) -> LedQueue:
    """Who pauses a queue does not wait for another leader."""
    queue, settings = _new(self, key, replica), self.settings.of_queue(key)
    queue._settings_of = lambda: settings
    return queue


# Share coordinators


@mutation("a change counts from any leader", (decisions, "_check_write"))
def counts_anything(queue: Queue, command: Write) -> None:
    """A leader that was replaced, or that has opened the queue again, has no say any more."""


@mutation("a change of an earlier term counts", (decisions, "_check_write"))
def counts_old_terms(queue: Queue, command: Write) -> None:
    """Of two leaders the one of the later term decides."""
    if command.version != queue.version + 1:
        raise decisions._fenced("another version")


@mutation("a change counts twice", (decisions, "_check_write"))
def counts_twice(queue: Queue, command: Write) -> None:
    """A call that arrives again changes nothing."""
    decisions._check_term(queue, command.term)
    if (command.opening, command.state_epoch) != (queue.opening, queue.state_epoch):
        raise decisions._fenced("another opening")


@mutation("a leader of an earlier term opens a queue", (decisions, "_check_term"))
def opens_for_old_terms(queue: Queue, term: int) -> None:
    """Who was replaced must not take a queue back."""


_stored = Queue.stored


@mutation("a queue that is stored as a whole lacks a range", (Queue, "stored"))
def loses_a_range(self: Queue) -> QueueStored:
    """A whole is all of it."""
    stored = _stored(self)
    return replace(stored, whole=replace(stored.whole, ranges=stored.whole.ranges[:-1]))


@mutation("the log is cut where not every queue is whole", (ShareCoordinator, "_shorten"))
async def cuts_too_much(self: ShareCoordinator) -> None:
    """What was stored before the cut must be stored behind it again."""
    end = self.replica.log_end_offset
    await self.replica.committed()
    await self.replica.delete_records(Offset(end))


@mutation("changes are forgotten when the log is read again", (QueuesState, "restore"))
def forgets_on_load(self: QueuesState, data: bytes, /) -> None:
    """The state is what the log says."""


_lead = Queues.lead
_ANY_TOPIC = TopicId(UUID(int=1))


@mutation("a queue outlives its topic", (Queues, "lead"))
def any_topic(self: Queues, group_id: GroupId, topic_id: TopicId, partition: int) -> LedQueue:
    """A topic that is made again under its name is another one."""
    queue = _lead(self, group_id, topic_id, partition)
    queue.key = queue.key._replace(topic_id=_ANY_TOPIC)
    return queue


# Dead letters

_of_queue = SettingsOfQueues.of_queue
_stored_first = LedQueue._submit
_redriven_to = LetterState.redriven_to
_shortened = LetterState.shortened


@mutation("what is given up is dead at once", (SettingsOfQueues, "of_queue"))
def dies_at_once(self: SettingsOfQueues, key: QueueKey) -> ShareSettings:
    """A record is dying until the dead-letter topic has it."""
    return replace(_of_queue(self, key), has_dead_letters=False)


def _storing(
    change_of: Callable[[LetterState], LetterState],
) -> Callable[[LedQueue, Change], Commit]:
    """What is stored of letters is not what the leader acts on."""

    def submit(self: LedQueue, change: Change) -> Commit:
        commit = _stored_first(self, change)
        if (
            change.letters is not None
            and self._storing.pending
            and self._storing.pending[-1] is change
        ):
            self._storing.pending[-1] = replace(change, letters=change_of(change.letters))
        return commit

    return submit


@mutation("the plan of a batch of letters is not stored", (LedQueue, "_submit"))
@_storing
def plans_in_memory(state: LetterState) -> LetterState:
    """The next leader sends the same batch again, or it can't tell what arrived."""
    return replace(state, plan=None)


@mutation("the sequence of letters is used again after a crash", (LedQueue, "_submit"))
@_storing
def forgets_sequence(state: LetterState) -> LetterState:
    """Other letters under the same sequence would be taken for the ones before."""
    sender = state.sender
    return state if sender is None else replace(state, sender=sender._replace(sequence=0))


@mutation("a refused batch of letters uses its sequence", (LetterState, "shortened"))
def uses_sequence(self: LetterState) -> LetterState:
    """Nothing was appended, so the partition waits for the same sequence."""
    state = _shortened(self)
    assert state.sender is not None
    return replace(state, sender=state.sender.after(1))


@mutation("records are dead before the topic has their letters", (Carrier, "_send"))
async def buries_early(self: Carrier, plan: Plan, sender: Sender, batch: bytes) -> None:
    """A leader that fails in between has lost them."""
    await self._arrived(plan, sender, plan.count)
    await self._publish(sender, batch)


@mutation("a plan outlives its dead-letter topic", (DeadLetters, "find"))
async def any_letters_topic(self: DeadLetters, topic_id: TopicId) -> Topic | None:
    """A topic that is made again under its name is another one, with other producers."""
    return next(iter(self.cluster.topics()))


@mutation("letters of letters go in circles", (Carrier, "_end_circles"))
async def goes_in_circles(self: Carrier, chosen: object, records: object) -> bool:
    """Groups that read each other's letters must not pass a record on endlessly."""
    return False


@mutation("letters are brought back without a note of it", (LetterState, "redriven_to"))
def notes_nothing(self: LetterState, place: Redriven, count: int) -> LetterState:
    """Who asks again must not bring back the same letters."""
    return _redriven_to(self, place._replace(next_offset=0), count)


@mutation("it is not counted how often a record came back", (dead_letters, "redrives_of"))
def counts_no_redrives(_: object) -> int:
    """A record that dies each time stays dead in the end."""
    return 0
