"""Answers what doors ask about queues: finds the leaders of the partitions and asks them.

A poll asks one node after the other what there is. If there is nothing, it waits at all of them at
once, and the first that has something wins: the others are called off, and give back what they may
have leased meanwhile as if it had never been (queue_leaders.py). So nothing is delivered that
nobody sees, and an attempt counts only if somebody saw the record.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from penstock.broker.configs import Edit, GroupResource, Operation
from penstock.broker.doors import calls, queue_calls
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.doors.queue_leaders import UNAVAILABLE
from penstock.broker.doors.streams import unknown_topic
from penstock.broker.forwarding import PASSING, Attempts
from penstock.broker.queues import check_group_id
from penstock.broker.topics import Topic, check_topic_name
from penstock.cluster.queue_settings import PAUSED_TOPICS
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId
from penstock.model.lease_tokens import door_member
from penstock.queues.settling import Outcome, Verb

# How long leaders are looked for, beyond the time that a poll waits for records.
FIND_S_MAX: Final = 10.0
# What an answer may take beyond the time that it was asked to wait.
GRACE_S: Final = 5.0
# While a partition has no leader, the others are waited at this long before it is looked for again.
LEADERLESS_S: Final = 0.5
# Polls that wait at other nodes at a time: each takes a call of theirs (replication/calls.py). One
# more is answered at once, with what there is.
POLLS_ELSEWHERE_MAX: Final = 500
_PASSING: Final = PASSING | {
    Reason.COORDINATOR_NOT_AVAILABLE,
    Reason.COORDINATOR_LOAD_IN_PROGRESS,
    Reason.NOT_COORDINATOR,
}
Led: TypeAlias = Mapping[BrokerId, list[int]]
_BROUGHT_ABOUT: Final = {Verb.ACK: Outcome.DONE, Verb.REJECT: Outcome.DONE}


# Finding


def _topic(desk: Desk, name: str, group: str) -> Topic:
    check_group_id(GroupId(group))
    topic = desk.services.topics.find(name)
    if topic is None:
        check_topic_name(name)
        raise unknown_topic(name)
    return topic


def _by_leader(
    desk: Desk, topic: Topic, partitions: Iterable[int]
) -> tuple[dict[BrokerId, list[int]], list[int]]:
    """The partitions of each node that leads some, in order, and those that nobody leads."""
    found: dict[BrokerId, list[int]] = {}
    leaderless: list[int] = []
    for partition in partitions:
        leader = desk.services.leaderships.reachable_leader(topic.topic_id, partition)
        if leader is None:
            leaderless.append(partition)
        else:
            found.setdefault(leader.id, []).append(partition)
    return found, leaderless


def _leaderless(topic: Topic, partitions: Sequence[int]) -> Refused:
    detail = f"Partition {partitions[0]} of {topic.name} has no leader now."
    return Refused(Reason.LEADER_NOT_AVAILABLE, detail)


def _never_polled(topic: Topic, group: str) -> Refused:
    detail = f"Nobody has polled topic {topic.name} for group {group!r} yet, so there is no queue."
    return Refused(Reason.GROUP_ID_NOT_FOUND, detail)


async def _ask_leaders(
    desk: Desk,
    topic: Topic,
    partitions: Iterable[int],
    make_call: Callable[[list[int]], calls.Call[calls.A]],
) -> list[calls.A]:
    """Each leader for its partitions, again where leadership moved, until all have answered. What
    is asked must be harmless to repeat."""
    clock = desk.services.clock
    attempts = Attempts(clock, clock.monotonic() + FIND_S_MAX, _PASSING)
    left, answers = list(partitions), []
    while True:
        led, leaderless = _by_leader(desk, topic, left)
        found = await asyncio.gather(
            *(desk.ask(node, make_call(some), attempts.left_s) for node, some in led.items()),
            return_exceptions=True,
        )
        refused = _leaderless(topic, leaderless) if leaderless else None
        left = leaderless
        for some, answer in zip(led.values(), found, strict=True):
            if isinstance(answer, Refused):
                refused = answer
                left = left + some
            elif isinstance(answer, BaseException):
                raise answer
            else:
                answers.append(answer)
        if refused is None:
            return answers
        await attempts.after(refused)


# Polls


async def poll_queue(desk: Desk, call: queue_calls.PollQueue) -> queue_calls.Polled:
    topic = _topic(desk, call.topic, call.group)
    lease_ms = _lease_ms(desk, call)
    _check_between("records_max", call.records_max, 1, queue_calls.POLL_RECORDS_MAX)
    _check_between("bytes_max", call.bytes_max, 1, queue_calls.POLL_BYTES_MAX)
    _check_between("wait_s", call.wait_s, 0, queue_calls.POLL_WAIT_S_MAX)
    poll_id = call.poll_id or secrets.token_hex(8)
    if poll_id in desk.polls:
        raise Refused(Reason.INVALID_REQUEST, f"There is a poll {poll_id!r} already.")
    poll = _Poll(desk, topic, call, lease_ms)
    polling = asyncio.create_task(poll.run())
    desk.polls[poll_id] = polling
    try:
        return await polling
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            poll.drop(polling)
            raise
        raise Refused(Reason.REQUEST_TIMED_OUT, "The poll was called off.") from None
    finally:
        del desk.polls[poll_id]


async def call_off_poll(desk: Desk, call: queue_calls.CallOffPoll) -> calls.Done:
    polling = desk.polls.get(call.poll_id)
    if polling is not None:
        polling.cancel()
    return calls.Done()


def _lease_ms(desk: Desk, call: queue_calls.PollQueue | queue_calls.SettleLeases) -> int:
    """What the call says, or the group's setting."""
    lease_ms = call.lease_ms or desk.services.queues.lock_duration_ms(GroupId(call.group))
    _check_between("lease_ms", lease_ms, queue_calls.LEASE_MS_MIN, queue_calls.LEASE_MS_MAX)
    return lease_ms


def _check_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        detail = f"{name} is {value}, but must be from {low} to {high}."
        raise Refused(Reason.INVALID_REQUEST, detail)


class _Poll:
    """One poll on its way to the leaders of a topic."""

    def __init__(
        self, desk: Desk, topic: Topic, call: queue_calls.PollQueue, lease_ms: int
    ) -> None:
        self._desk = desk
        self._topic = topic
        self._call = call
        self._lease_ms = lease_ms
        self._now = desk.services.clock.monotonic
        # Each poll begins with another partition, so that none waits behind a busy one.
        desk.poll_number += 1
        turn = desk.poll_number % topic.partitions
        self._partitions = [*range(turn, topic.partitions), *range(turn)]

    async def run(self) -> queue_calls.Polled:
        begin = self._now()
        until = begin + self._call.wait_s
        deadline = max(until, begin + FIND_S_MAX)
        attempts = Attempts(self._desk.services.clock, deadline, _PASSING)
        while True:
            led, leaderless = _by_leader(self._desk, self._topic, self._partitions)
            wait_s = max(0.0, until - self._now())
            found = await self._look(led, min(wait_s, LEADERLESS_S) if leaderless else wait_s)
            if isinstance(found, Refused):
                await attempts.after(_leaderless(self._topic, leaderless) if not led else found)
            elif found.parts or not leaderless or self._now() >= until:
                return found

    async def _look(self, led: Led, wait_s: float) -> queue_calls.Polled | Refused:
        """What the first has that has something; the refusal of one if there was nothing."""
        refused: Refused | None = None if led else Refused(Reason.LEADER_NOT_AVAILABLE)
        may_wait = set(led) <= {self._desk.own} or self._desk.polls_elsewhere < POLLS_ELSEWHERE_MAX
        if len(led) > 1 or not may_wait:
            for node, partitions in led.items():
                found = await self._ask(node, partitions, 0.0)
                if isinstance(found, Refused):
                    refused = found
                elif found.parts:
                    return found
        elif led:
            ((node, partitions),) = led.items()
            return await self._ask(node, partitions, wait_s)
        if refused is not None or not wait_s or not may_wait:
            return refused or self._joined(())
        return await self._wait(led, wait_s)

    async def _wait(self, led: Led, wait_s: float) -> queue_calls.Polled | Refused:
        """At all of them, until one has something."""
        create = asyncio.get_running_loop().create_task
        asking = {create(self._ask(*each, wait_s)) for each in led.items()}
        self._desk.polls_elsewhere += 1
        try:
            while asking:
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                answers = [task.result() for task in done]
                asking -= done
                found = [each for each in answers if not isinstance(each, Refused) and each.parts]
                if found:
                    return self._joined(found)
                for each in answers:
                    if isinstance(each, Refused):
                        return each
            return self._joined(())
        finally:
            self._desk.polls_elsewhere -= 1
            for task in asking:
                if not task.cancel():
                    self.drop(task)
            await asyncio.gather(*asking, return_exceptions=True)

    def drop(self, asked: "asyncio.Task[Any]") -> None:
        """The one who asked is gone: an answer that is there already is given back."""
        is_answered = asked.done() and not asked.cancelled() and asked.exception() is None
        answer = asked.result() if is_answered else None
        for part in answer.parts if isinstance(answer, queue_calls.Polled) else ():
            leader = self._desk.services.leaderships.reachable_leader(
                self._topic.topic_id, part.partition
            )
            if leader is not None:
                self._desk.spawn(self._end(leader.id, [part.partition], part.member_id))

    def _joined(self, found: Sequence[queue_calls.Polled]) -> queue_calls.Polled:
        """Two may have answered in the same turn: what was leased is not given back for that."""
        parts = [part for each in found for part in each.parts]
        return queue_calls.Polled(
            topic_id=self._topic.topic_id, lease_ms=self._lease_ms, parts=parts
        )

    async def _ask(
        self, node: BrokerId, partitions: list[int], wait_s: float
    ) -> queue_calls.Polled | Refused:
        """A refusal is returned if another leader, or this one later, may answer."""
        call, member_id = self._call, door_member(secrets.token_hex(16))
        asked = queue_calls.PollPartitions(
            topic_id=self._topic.topic_id,
            group=call.group,
            partitions=partitions,
            member_id=member_id,
            records_max=call.records_max,
            bytes_max=call.bytes_max,
            lease_ms=self._lease_ms,
            wait_s=wait_s,
        )
        try:
            return await self._desk.ask(node, asked, wait_s + GRACE_S)
        except Refused as refused:
            if refused.reason not in _PASSING:
                raise
            if refused.reason is Reason.REQUEST_TIMED_OUT:
                self._desk.spawn(self._end(node, partitions, member_id))
            return refused
        except asyncio.CancelledError:
            if node != self._desk.own:
                self._desk.spawn(self._end(node, partitions, member_id))
            raise

    async def _end(self, node: BrokerId, partitions: list[int], member_id: str) -> None:
        """If it can't be reached, what it leased runs out."""
        call = queue_calls.EndPoll(
            topic_id=self._topic.topic_id,
            group=self._call.group,
            partitions=partitions,
            member_id=member_id,
        )
        with suppress(Refused):
            await self._desk.ask(node, call, GRACE_S)


# Tokens


async def settle_leases(desk: Desk, call: queue_calls.SettleLeases) -> queue_calls.ClaimOutcomes:
    topic = _topic(desk, call.topic, call.group)
    verb = _verb(call.verb)
    if verb is Verb.EXTEND:
        call.lease_ms = _lease_ms(desk, call)
    if call.delay_ms is not None:
        _check_between("delay_ms", call.delay_ms, 0, queue_calls.NACK_DELAY_MS_MAX)
    _check_between("number of tokens", len(call.claims), 0, queue_calls.CLAIMS_PER_CALL_MAX)
    outcomes = ["" for _ in call.claims]
    for index, claim in enumerate(call.claims):
        if not 0 <= claim.partition < topic.partitions or call.topic_id != topic.topic_id:
            outcomes[index] = str(Outcome.UNKNOWN)
    await _settle(desk, topic, call, verb, outcomes)
    return queue_calls.ClaimOutcomes(
        outcomes=[each or UNAVAILABLE for each in outcomes], lease_ms=call.lease_ms
    )


def _verb(text: str) -> Verb:
    try:
        return Verb(text)
    except ValueError:
        detail = f"{text!r} is not one of {', '.join(Verb)}."
        raise Refused(Reason.INVALID_REQUEST, detail) from None


async def _settle(
    desk: Desk, topic: Topic, call: queue_calls.SettleLeases, verb: Verb, outcomes: list[str]
) -> None:
    """Fills in what is missing of the outcomes, as far as leaders can be asked in time."""
    clock = desk.services.clock
    attempts = Attempts(clock, clock.monotonic() + FIND_S_MAX, _PASSING)
    # Claims whose fate is unknown, because a leader did not answer.
    uncertain: set[int] = set()
    while True:
        by_node: dict[BrokerId, list[int]] = {}
        left = [index for index, outcome in enumerate(outcomes) if not outcome]
        led, _ = _by_leader(desk, topic, sorted({call.claims[each].partition for each in left}))
        node_of = {partition: node for node, some in led.items() for partition in some}
        for index in left:
            node = node_of.get(call.claims[index].partition)
            if node is not None:
                by_node.setdefault(node, []).append(index)
        await asyncio.gather(
            *(
                _settle_at(desk, topic, call, node, indexes, outcomes, uncertain)
                for node, indexes in by_node.items()
            )
        )
        if all(outcomes):
            break
        try:
            await attempts.after(Refused(Reason.LEADER_NOT_AVAILABLE))
        except Refused:
            break
    brought_about = _BROUGHT_ABOUT.get(verb)
    for index in uncertain:
        # An attempt without an answer has done it, or somebody else has.
        if outcomes[index] == brought_about:
            outcomes[index] = str(Outcome.OK)


async def _settle_at(
    desk: Desk,
    topic: Topic,
    call: queue_calls.SettleLeases,
    node: BrokerId,
    indexes: Sequence[int],
    outcomes: list[str],
    uncertain: set[int],
) -> None:
    asked = queue_calls.SettlePartitions(
        topic_id=topic.topic_id,
        group=call.group,
        verb=call.verb,
        claims=[call.claims[index] for index in indexes],
        lease_ms=call.lease_ms,
        delay_ms=call.delay_ms,
    )
    try:
        found = (await desk.ask(node, asked, GRACE_S)).outcomes
    except Refused as refused:
        if refused.reason not in _PASSING:
            raise
        found = [UNAVAILABLE] * len(indexes)
    for index, outcome in zip(indexes, found, strict=True):
        if outcome == UNAVAILABLE:
            uncertain.add(index)
        else:
            outcomes[index] = outcome


# Looking at queues


async def peek_queue(desk: Desk, call: queue_calls.PeekQueue) -> queue_calls.Peeked:
    topic = _topic(desk, call.topic, call.group)
    _check_between("records_max", call.records_max, 1, queue_calls.POLL_RECORDS_MAX)
    _check_between("bytes_max", call.bytes_max, 1, queue_calls.POLL_BYTES_MAX)

    def make_call(partitions: list[int]) -> queue_calls.PeekPartitions:
        return queue_calls.PeekPartitions(
            topic_id=topic.topic_id,
            group=call.group,
            partitions=partitions,
            records_max=call.records_max,
            bytes_max=call.bytes_max,
        )

    answers = await _ask_leaders(desk, topic, range(topic.partitions), make_call)
    if not any(answer.is_there for answer in answers):
        raise _never_polled(topic, call.group)
    parts = [part for answer in answers for part in answer.parts]
    return queue_calls.Peeked(parts=sorted(parts, key=lambda part: part.partition))


async def queue_stats(desk: Desk, call: queue_calls.QueueStats) -> queue_calls.QueueState:
    topic = _topic(desk, call.topic, call.group)
    answers = await _ask_leaders(
        desk,
        topic,
        range(topic.partitions),
        lambda some: queue_calls.StatPartitions(
            topic_id=topic.topic_id, group=call.group, partitions=some
        ),
    )
    partitions = sorted(
        (each for answer in answers for each in answer.partitions), key=lambda each: each.partition
    )
    if not partitions:
        raise _never_polled(topic, call.group)
    oldest = [each.oldest_ms for each in partitions if each.oldest_ms >= 0]
    now_ms = desk.services.clock.now_ms()
    return queue_calls.QueueState(
        partitions=partitions,
        is_paused=any(answer.is_paused for answer in answers),
        oldest_age_ms=max(0, now_ms - min(oldest)) if oldest else -1,
    )


# Operating queues


async def purge_queue(desk: Desk, call: queue_calls.PurgeQueue) -> queue_calls.Purged:
    topic = _topic(desk, call.topic, call.group)
    wanted = range(topic.partitions) if call.partitions is None else call.partitions
    for partition in wanted:
        if not 0 <= partition < topic.partitions:
            detail = f"Topic {topic.name} has {topic.partitions} partitions, so no {partition}."
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
    answers = await _ask_leaders(
        desk,
        topic,
        wanted,
        lambda some: queue_calls.PurgePartitions(
            topic_id=topic.topic_id, group=call.group, partitions=some
        ),
    )
    return queue_calls.Purged(count=sum(answer.count for answer in answers))


async def redrive_queue(desk: Desk, call: queue_calls.RedriveQueue) -> queue_calls.Redriven:
    topic = _topic(desk, call.topic, call.group)
    if call.limit < 1:
        raise Refused(Reason.INVALID_REQUEST, f"{call.limit} is not a number of records.")
    result = await desk.services.queues.redrive(GroupId(call.group), topic.name, call.limit)
    return queue_calls.Redriven(
        reopened=result.reopened,
        copied=result.copied,
        skipped=result.skipped,
        is_finished=result.is_finished,
    )


async def pause_queue(desk: Desk, call: queue_calls.PauseQueue) -> calls.Done:
    return await _set_paused(desk, call.topic, call.group, Operation.APPEND)


async def resume_queue(desk: Desk, call: queue_calls.ResumeQueue) -> calls.Done:
    return await _set_paused(desk, call.topic, call.group, Operation.SUBTRACT)


async def _set_paused(desk: Desk, topic: str, group: str, operation: Operation) -> calls.Done:
    name = _topic(desk, topic, group).name
    edit = Edit(PAUSED_TOPICS, operation, name)
    (refused,) = await desk.services.configs.edit([(GroupResource(group), [edit])])
    if refused is not None:
        raise refused
    return calls.Done()


METHODS: tuple[Method[Any], ...] = (
    Method(queue_calls.PollQueue, poll_queue),
    Method(queue_calls.CallOffPoll, call_off_poll),
    Method(queue_calls.SettleLeases, settle_leases),
    Method(queue_calls.PeekQueue, peek_queue),
    Method(queue_calls.QueueStats, queue_stats),
    Method(queue_calls.PurgeQueue, purge_queue),
    Method(queue_calls.RedriveQueue, redrive_queue),
    Method(queue_calls.PauseQueue, pause_queue),
    Method(queue_calls.ResumeQueue, resume_queue),
)
