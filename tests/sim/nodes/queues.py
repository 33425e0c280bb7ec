"""A simulated share group (KIP-932): workers lease records, ack, give back, reject and renew them,
let leases run out, close their sessions and break off polls.

By the clocks of brokers a record is with one worker at a time. A delivery attempt has a number that
is given once, and numbers never go back, except that a session that ends gives back the attempt of
what it had. A lease holds until its time is over, whatever happens to brokers. What was acked is
never delivered again, and what is done with was acked, rejected, or tried as often as is allowed.
Some queues have records for later, a backoff or order per key (`queue_rules.py`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

from penstock.broker.queues import (
    AckBatch,
    AckType,
    AcquiredPartition,
    AcquireQuery,
    QueueOffset,
    Queues,
    WantedShare,
)
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, PartitionId, TopicId
from penstock.queues.leading import LedQueue
from penstock.records.batch import decode_records
from penstock.records.record import Record
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.queue_rules import Delivered, QueueRules, check_order
from tests.sim.replicas.clients import whole_batch
from tests.sim.replicas.history import require

GROUP = GroupId("queue")
LEASE_MS = 1_500
ATTEMPTS_MAX = 4
# On the fastest of clocks a lease is over no sooner than this.
LEASE_S_MIN = LEASE_MS / 1000 / 1.06
QUEUE_SETTINGS = {
    "group.share.record.lock.duration.ms": str(LEASE_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(ATTEMPTS_MAX),
    "share.coordinator.state.topic.num.partitions": "2",
}
ANSWER_S_MAX = 3.0
INITIALIZE_PAUSE_S = 0.1
BETWEEN_S = (0.01, 0.4)
# Longer than a lease, after which a worker goes on as if nothing had happened.
AWAY_S = (1.5, 4.0)
AWAY_CHANCE = 0.04
POLL_CHANCE = 0.5
CLOSE_CHANCE = 0.04
BREAK_OFF_CHANCE = 0.04
FORGET_CHANCE = 0.1
TYPES = (
    *[AckType.ACCEPT] * 12,
    *[AckType.RELEASE] * 3,
    *[AckType.RENEW] * 3,
    *[AckType.REJECT] * 3,
    AckType.GAP,
)
WAIT_MS = (0, 100, 500)
_FINAL = frozenset((AckType.ACCEPT, AckType.REJECT, AckType.GAP))


@dataclass(slots=True)
class Lease:
    """One delivery of one record, as somebody heard of it."""

    member_id: MemberId
    attempt: int
    asked_at: float
    answered_at: float
    # Until then it is certain that nobody else gets the record.
    until: float
    # Whether the worker has said something about it that may end it, and whether it gave it back
    # with its session.
    is_ended: bool = False
    is_closed: bool = False


@dataclass(slots=True)
class Story:
    """What became of one record."""

    leases: list[Lease] = field(default_factory=list)
    # When somebody was told that it is done with, and in which attempt.
    done_at: float | None = None
    done_attempt: int = 0
    # Whether somebody asked for that at all, and by which words.
    may_be_done: bool = False
    may_be_rejected: bool = False
    may_be_acked: bool = False
    delivered: Delivered | None = None
    # Whether a leader may have given it up for its age.
    may_be_expired: bool = False


class Ledger:
    """What all workers together have seen of a queue."""

    def __init__(self, keys: Sequence[PartitionId], rules: QueueRules) -> None:
        self.keys = keys
        self.rules = rules
        self.stories: dict[tuple[int, int], Story] = defaultdict(Story)
        # From there on no record may be skipped.
        self.starts: dict[int, int] = {}
        # Polls of which nobody heard, or not yet: each may have delivered anything once.
        self.unheard: dict[int, int] = defaultdict(int)
        # How often a leader did not know what became of its changes, and began again.
        self.voids: dict[int, int] = defaultdict(int)
        # Members whose sessions are over.
        self.closed: set[MemberId] = set()
        self.found: dict[int, QueueOffset] = {}
        self.delivered = self.acked = self.refused = self.redelivered = 0
        # How often somebody began to bring dead letters back.
        self.redrives = self.brought_back = 0

    def granted(
        self,
        partition: int,
        record: Record,
        attempt: int,
        member_id: MemberId,
        asked_at: float,
        now: float,
    ) -> Lease:
        offset = record.offset
        story, place = self.stories[partition, offset], f"{partition}:{offset}"
        self.rules.check_due(place, record)
        story.may_be_expired |= self.rules.may_be_expired(record)
        if story.delivered is None:
            story.delivered = Delivered(record.key, now)
        lease = Lease(member_id, attempt, asked_at, now, asked_at + LEASE_S_MIN)
        lease.is_ended = lease.is_closed = member_id in self.closed
        # Where the queue begins is settled, and not behind this.
        self.starts[partition] = min(offset, self.starts.get(partition, offset))
        self.delivered += 1
        self.redelivered += attempt > 1
        may_come_back = self.may_come_back(partition, story)
        if not may_come_back:
            self._check_done(story, lease, place)
        for before in story.leases:
            self._check_against(before, lease, place, may_come_back)
        possible = len(story.leases) + self.unheard[partition] + 1
        require(
            1 <= attempt <= min(possible, ATTEMPTS_MAX),
            f"{place} was delivered in attempt {attempt}, of {possible} that are possible",
        )
        story.leases.append(lease)
        return lease

    def finishing(self, partition: int, offset: int, now: float) -> None:
        """Somebody is about to say that it is done with."""
        story = self.stories[partition, offset]
        story.may_be_done = True
        if story.delivered is not None:
            story.delivered.may_be_over_at = min(story.delivered.may_be_over_at, now)

    def _check_done(self, story: Story, lease: Lease, place: str) -> None:
        if story.done_at is not None:
            is_late = lease.asked_at > story.done_at or lease.attempt > story.done_attempt
            require(
                not is_late,
                f"{place} was done with in attempt {story.done_attempt} at {story.done_at}, and "
                f"is delivered by {lease}",
            )

    def may_come_back(self, partition: int, story: Story) -> bool:
        """Whether it may have been brought back from the dead: then its attempts begin again."""
        attempts = max((lease.attempt for lease in story.leases), default=0)
        may_be_dead = attempts + self.unheard[partition] >= ATTEMPTS_MAX or story.may_be_rejected
        return self.redrives > 0 and (may_be_dead or story.may_be_expired)

    def _check_against(self, before: Lease, lease: Lease, place: str, may_come_back: bool) -> None:
        # Who has the record may be given it again only after its lease.
        is_certain = not before.is_ended and lease.answered_at < before.until
        require(not is_certain, f"{place} is leased by {before}, and again by {lease}")
        if before.is_closed or may_come_back:
            return
        require(
            before.attempt != lease.attempt,
            f"{place} has the same attempt twice: {before} and {lease}",
        )
        require(
            lease.asked_at < before.answered_at or lease.attempt > before.attempt,
            f"the attempts of {place} go back: {before}, then {lease}",
        )

    def acknowledged(self, partition: int, offset: int, lease: Lease, now: float) -> None:
        """As in Kafka, an ack of what lies below the queue's start says nothing, and is not
        refused, whoever it is from."""
        story = self.stories[partition, offset]
        if story.done_at is None:
            story.done_at, story.done_attempt = now, lease.attempt
            self.acked += 1

    def check_owner(
        self, partition: int, offset: int, lease: Lease, asked_at: float, now: float
    ) -> None:
        """Who acks has the last lease: nobody else has a later one."""
        for other in self.stories[partition, offset].leases:
            is_later = other.attempt > lease.attempt and other.answered_at < asked_at
            is_certain = not other.is_ended and now < other.until
            require(
                not (is_later and is_certain) or other.member_id == lease.member_id,
                f"{partition}:{offset} was acked by {lease}, and {other} came after it",
            )

    def close(self, member_id: MemberId) -> None:
        """All that it has may be given back from now on, and not count as tried."""
        self.closed.add(member_id)
        for story in self.stories.values():
            for lease in story.leases:
                if lease.member_id == member_id:
                    lease.is_ended = lease.is_closed = True

    @contextmanager
    def counting_voids(self) -> Iterator[None]:
        void = LedQueue._void

        def count(queue: LedQueue, refused: Refused, *level: int, **named: int) -> None:
            self.voids[queue.key.partition] += 1
            void(queue, refused, *level, **named)

        with patch.object(LedQueue, "_void", count):
            yield

    # The end

    def unfinished(self, ends: Mapping[int, int]) -> str:
        """What is still to come of the queue; empty when all is done with."""
        for partition, end in ends.items():
            found = self.found.get(partition)
            if found is None or found.lag != 0 or found.start < 0:
                return f"partition {partition} ends at {end}, and its queue is {found}"
        return ""

    def note_expired(self, partition: int, record: Record) -> None:
        """In the end, of every record of the log."""
        if self.rules.may_be_expired(record):
            self.stories[partition, record.offset].may_be_expired = True
            self.rules.expired += 1

    def check_end(self, ends: Mapping[int, int]) -> None:
        for partition, end in ends.items():
            if self.rules.has_key_order:
                self._check_order(partition, end)
            for offset in range(self.starts.get(partition, end), end):
                story = self.stories.get((partition, offset), Story())
                require(
                    story.may_be_done
                    or story.may_be_expired
                    or self._may_be_given_up(partition, story),
                    f"{partition}:{offset} is done with, and nobody said so: {story}",
                )

    def _may_be_given_up(self, partition: int, story: Story) -> bool:
        attempts = max((lease.attempt for lease in story.leases), default=0)
        return attempts + self.unheard[partition] >= ATTEMPTS_MAX

    def _check_order(self, partition: int, end: int) -> None:
        delivered: list[tuple[int, Delivered]] = []
        for offset in range(end):
            story = self.stories.get((partition, offset))
            if story is None or story.delivered is None:
                continue
            if story.may_be_expired and self.redrives:
                # It may have been given up before anybody had it, and brought back: then it has no
                # place in the order any more.
                continue
            if story.may_be_expired or self._may_be_given_up(partition, story):
                # Nobody knows when.
                story.delivered.may_be_over_at = story.delivered.given_at
            delivered.append((offset, story.delivered))
        self.rules.ordered += check_order(partition, delivered)


class QueueWorker:
    """One request at a time, to whoever leads the partition or to anybody."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], ledger: Ledger, number: int
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._ledger = ledger
        self._name = f"worker-{number}"
        self._sessions = 0
        self._member_id = self._new_id()
        self._held: dict[tuple[int, int], Lease] = {}
        self._asked = 0
        # Whether it only does what finishes the work.
        self.is_hurrying = False
        self._act_later()

    def _new_id(self) -> MemberId:
        self._sessions += 1
        return MemberId(f"{self._name}-{self._sessions}")

    def _act_later(self) -> None:
        random = self._world.random
        is_away = not self.is_hurrying and random.random() < AWAY_CHANCE
        self._world.after(random.uniform(*(AWAY_S if is_away else BETWEEN_S)), self._act)

    def _act(self) -> None:
        random = self._world.random
        partition = random.randrange(len(self._ledger.keys))
        if self._held and random.random() > POLL_CHANCE:
            partition = random.choice(sorted(self._held))[0]
        node = self._leader(partition)
        if node is None:
            self._act_later()
            return
        self._asked += 1
        act = self._choose(partition)
        lost = partial(self._lost, self._asked)
        node.ask(self._serve(node, partition, act, self._asked), lost)
        self._world.after(ANSWER_S_MAX, lost)

    def _leader(self, partition: int) -> SimulatedNode | None:
        nodes = [node for node in self._nodes if node.is_responsive]
        leading = [node for node in nodes if node.leads(self._ledger.keys[partition])]
        choices = leading or nodes
        return self._world.random.choice(choices) if choices else None

    def _choose(self, partition: int) -> Callable[[Queues, int, int], Awaitable[None]]:
        random = self._world.random
        if not self.is_hurrying and random.random() < CLOSE_CHANCE:
            return self._close
        has_some = any(held[0] == partition for held in self._held)
        if has_some and (self.is_hurrying or random.random() > POLL_CHANCE):
            return self._acknowledge
        return self._poll

    async def _serve(
        self,
        node: SimulatedNode,
        partition: int,
        act: Callable[[Queues, int, int], Awaitable[None]],
        number: int,
    ) -> None:
        assert node.server is not None
        await act(node.server.services.queues, partition, number)
        self._world.after(0.001, self._over, number)

    def _over(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            self._act_later()

    def _lost(self, number: int) -> None:
        """Without an answer: what it asked for may still be done, so it goes on as another one."""
        if number == self._asked:
            self._held = {}
            self._member_id = self._new_id()
            self._over(number)

    # Polls

    def _break_off_some(self) -> None:
        """A consumer that goes away in the middle of a poll gives back all that it has."""
        random = self._world.random
        if not self.is_hurrying and random.random() < BREAK_OFF_CHANCE:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self._end_session()
            loop.call_later(random.uniform(0.0, 0.3), task.cancel)

    async def _poll(self, queues: Queues, partition: int, number: int) -> None:
        random, key = self._world.random, self._ledger.keys[partition]
        wanted = WantedShare(
            topic_id=key.topic_id, partition=partition, bytes_max=random.choice((200, 4096))
        )
        query = AcquireQuery(
            group_id=GROUP,
            member_id=self._member_id,
            wanted=[wanted],
            wait_ms_max=random.choice(WAIT_MS),
            bytes_min=1,
            bytes_max=4096,
            records_max=random.choice((1, 3, 20)),
            batch_size=random.choice((1, 5, 20)),
            is_exact=random.random() < 0.3,
        )
        member_id, asked_at = self._member_id, self._world.now
        self._break_off_some()
        # Of one that ends with its process nobody hears, and where the leader began again, leases
        # may be stored that never left.
        ledger, voids = self._ledger, self._ledger.voids[partition]
        ledger.unheard[partition] += 1
        answer, content = await self._leased(queues, query)
        if ledger.voids[partition] == voids:
            ledger.unheard[partition] -= 1
        self._take(answer, content, member_id, asked_at, number)

    async def _leased(self, queues: Queues, query: AcquireQuery) -> tuple[AcquiredPartition, bytes]:
        rules = self._ledger.rules
        before = rules.moment(queues)
        (answer,) = await queues.acquire(query)
        content = bytes_of(answer)
        answer.release()
        leased = frozenset(at for each in answer.ranges for at in range(each.first, each.last + 1))
        records = [record for record in _records(content) if record.offset in leased]
        rules.check_poll(answer.wanted.partition, before, rules.moment(queues), records)
        return answer, content

    def _take(
        self,
        answer: AcquiredPartition,
        content: bytes,
        member_id: MemberId,
        asked_at: float,
        number: int,
    ) -> None:
        partition, now = answer.wanted.partition, self._world.now
        records = {record.offset: record for record in _records(content)}
        self._ledger.rules.look_at_clocks(self._nodes)
        for first, last, attempt in answer.ranges:
            for offset in range(first, last + 1):
                require(offset in records, f"{partition}:{offset} is leased, and was not sent")
                lease = self._ledger.granted(
                    partition, records[offset], attempt, member_id, asked_at, now
                )
                if number == self._asked and member_id == self._member_id:
                    # Whatever it says of the record now is about this delivery: an acknowledgement
                    # names the member and not the attempt.
                    self._held.pop((partition, offset), None)
                    if self._remembers():
                        self._held[partition, offset] = lease

    def _remembers(self) -> bool:
        return self.is_hurrying or self._world.random.random() >= FORGET_CHANCE

    # Acknowledgements

    async def _acknowledge(self, queues: Queues, partition: int, _: int) -> None:
        held = sorted(place[1] for place in self._held if place[0] == partition)
        if not held:
            return
        said = {offset: self._word() for offset in self._some_of(held)}
        leases = {offset: self._held[partition, offset] for offset in said}
        for offset, kind in said.items():
            if kind != AckType.RENEW:
                del self._held[partition, offset]
                leases[offset].is_ended = True
                story = self._ledger.stories[partition, offset]
                if kind in _FINAL:
                    self._ledger.finishing(partition, offset, self._world.now)
                story.may_be_rejected |= kind is AckType.REJECT
                story.may_be_acked |= kind in (AckType.ACCEPT, AckType.GAP)
        asked_at = self._world.now
        place = (self._ledger.keys[partition].topic_id, partition)
        outcomes = await queues.acknowledge(GROUP, self._member_id, {place: _batches(said)})
        refused = outcomes[place]
        if refused is None:
            self._acknowledged(partition, said, leases, asked_at)
        else:
            self._refused(partition, refused, leases, asked_at)

    def _word(self) -> AckType:
        return AckType.ACCEPT if self.is_hurrying else self._world.random.choice(TYPES)

    def _some_of(self, held: list[int]) -> list[int]:
        if self.is_hurrying:
            return held
        first = self._world.random.randrange(len(held))
        return held[first : first + self._world.random.choice((1, 3, 20))]

    def _acknowledged(
        self,
        partition: int,
        said: Mapping[int, AckType],
        leases: Mapping[int, Lease],
        asked_at: float,
    ) -> None:
        for offset, kind in said.items():
            lease = leases[offset]
            self._ledger.check_owner(partition, offset, lease, asked_at, self._world.now)
            if kind in _FINAL:
                self._ledger.acknowledged(partition, offset, lease, self._world.now)
            elif kind is AckType.RENEW and not lease.is_ended:
                lease.until = max(lease.until, asked_at + LEASE_S_MIN)

    def _refused(
        self,
        partition: int,
        refused: Refused,
        leases: Mapping[int, Lease],
        asked_at: float,
    ) -> None:
        self._ledger.refused += 1
        is_certain = all(
            self._world.now < lease.until and not lease.is_closed for lease in leases.values()
        )
        is_lost = refused.reason is Reason.INVALID_RECORD_STATE and is_certain
        is_lost = is_lost or refused.reason is Reason.INVALID_REQUEST
        require(
            not is_lost, f"{partition}: {refused.detail} at {asked_at}, and these have it: {leases}"
        )
        for offset in leases:
            self._held.pop((partition, offset), None)

    # Sessions

    async def _close(self, queues: Queues, partition: int, _: int) -> None:
        member_id = self._member_id
        self._end_session()
        place = (self._ledger.keys[partition].topic_id, partition)
        await queues.release(GROUP, member_id, [place])

    def _end_session(self) -> None:
        self._ledger.close(self._member_id)
        self._held = {}
        self._member_id = self._new_id()


async def initialize(node: SimulatedNode, ledger: Ledger, start: int) -> None:
    """Makes the queues, as the group's coordinator does before it hands them out."""
    assert node.server is not None
    topic_id: TopicId = ledger.keys[0].topic_id
    starts = dict.fromkeys(range(len(ledger.keys)), start)
    while True:
        try:
            await node.server.services.queues.initialize(GROUP, {topic_id: starts})
        except Refused:
            await asyncio.sleep(INITIALIZE_PAUSE_S)
        else:
            return


async def look(node: SimulatedNode, ledger: Ledger) -> None:
    assert node.server is not None
    topic_id = ledger.keys[0].topic_id
    try:
        found = await node.server.services.queues.describe_offsets(
            GROUP, {topic_id: range(len(ledger.keys))}
        )
    except Refused:
        return
    ledger.found = {
        partition: offset
        for (_, partition), offset in found.items()
        if isinstance(offset, QueueOffset)
    }


def _batches(said: Mapping[int, AckType]) -> list[AckBatch]:
    """As clients send them: one batch for neighbours."""
    runs: list[list[int]] = []
    for offset in said:
        if runs and runs[-1][-1] + 1 == offset:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return [
        AckBatch(first=run[0], last=run[-1], types=tuple(said[offset] for offset in run))
        for run in runs
    ]


def bytes_of(answer: AcquiredPartition) -> bytes:
    records = answer.records
    return records.read() if isinstance(records, FileRange) else records or b""


def _records(content: bytes) -> Iterator[Record]:
    while content and (header := whole_batch(content)) is not None:
        yield from decode_records(content)
        content = content[header.size :]
