"""Answers, on the leader of partitions, what is asked about queues through doors.

Each poll is a member of its own, known to nobody but the queue: it joins no group and has no
session. Its leases run out, or are ended by their tokens.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from penstock.broker.doors import calls, queue_calls
from penstock.broker.doors.administration import find_coordinator
from penstock.broker.doors.desk import CALL_S_MAX, Desk, Method
from penstock.broker.queue_reads import Found
from penstock.broker.queues import AcquireQuery, Queues, WantedShare
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.model.topic_config import TimestampType
from penstock.queues.leading import LedQueue
from penstock.queues.machine import ShareMachine
from penstock.queues.records import UNRESOLVED
from penstock.queues.settling import Claim, Outcome, Verb, settle
from penstock.records.batch import HEADER_SIZE, parse_header
from penstock.replication.commit import Commit

UNAVAILABLE: Final = "unavailable"
# A refusal of these reasons says nothing of the records: the leader moved, or is busy.
_MEANS_NOTHING: Final = frozenset({Outcome.EXPIRED, Outcome.DONE, Outcome.UNKNOWN})


# Queues of this node


async def opened(
    desk: Desk, topic_id: TopicId, group: str, partitions: Iterable[int], *, makes: bool = False
) -> list[LedQueue]:
    """All of them, open; raises Refused. One that nobody asked for before is made, or left out."""
    queues, group_id = desk.services.queues, GroupId(group)
    led = [queues.lead(group_id, topic_id, partition) for partition in partitions]
    opening = [queue.open() for queue in led]
    missing = []
    for queue, commit in zip(led, opening, strict=True):
        try:
            await commit
        except Refused as refused:
            if refused.reason is not Reason.GROUP_ID_NOT_FOUND:
                raise
            missing.append(queue)
    if missing and not makes:
        return [queue for queue in led if queue not in missing]
    if missing:
        # By the group's coordinator, who knows of which type the group is.
        starts = [(queue.key.partition, _start(queues, queue)) for queue in missing]
        making = queue_calls.MakeQueues(topic_id=topic_id, group=group, starts=starts)
        await desk.ask(await find_coordinator(desk, group), making, CALL_S_MAX)
        for commit in [queue.open() for queue in missing]:
            await commit
    return led


def _start(queues: Queues, queue: LedQueue) -> int:
    """With the earliest record: who sends first and polls later would miss it otherwise."""
    if queues.settings.has_own_start(queue.key.group_id):
        return UNRESOLVED
    return queue.log.log_start_offset


async def make_queues(desk: Desk, call: queue_calls.MakeQueues) -> calls.Done:
    group_id, topic_id = GroupId(call.group), TopicId(call.topic_id)
    await desk.services.groups.make_queues(group_id, topic_id, dict(call.starts))
    return calls.Done()


# Polls


async def poll_partitions(desk: Desk, call: queue_calls.PollPartitions) -> queue_calls.Polled:
    """Registered, so that another node can end it (EndPoll) while it waits."""
    task = asyncio.current_task()
    assert task is not None
    desk.polls[call.member_id] = task
    try:
        return await _poll(desk, call)
    finally:
        del desk.polls[call.member_id]


async def _poll(desk: Desk, call: queue_calls.PollPartitions) -> queue_calls.Polled:
    queues, topic_id = desk.services.queues, TopicId(call.topic_id)
    await opened(desk, topic_id, call.group, call.partitions, makes=True)
    query = AcquireQuery(
        group_id=GroupId(call.group),
        member_id=MemberId(call.member_id),
        wanted=[
            WantedShare(topic_id=topic_id, partition=partition, bytes_max=call.bytes_max)
            for partition in call.partitions
        ],
        wait_ms_max=int(call.wait_s * 1000),
        bytes_min=1,
        bytes_max=call.bytes_max,
        records_max=call.records_max,
        batch_size=call.records_max,
        is_exact=True,
        lease_ms=call.lease_ms,
        is_only_poll=True,
    )
    answers = await queues.acquire(query)
    parts = []
    refused: Refused | None = None
    for answer in answers:
        if answer.reason is not None:
            refused = Refused(answer.reason, answer.detail)
        elif answer.ranges:
            records = answer.records
            # It was read a moment ago: it is in memory.
            batches = records.read() if isinstance(records, FileRange) else records or b""
            parts.append(
                queue_calls.LeasedPart(
                    partition=answer.wanted.partition,
                    batches=batches,
                    ranges=[(first, last, attempt) for first, last, attempt in answer.ranges],
                    member_id=call.member_id,
                )
            )
        answer.release()
    if refused is not None and not parts:
        raise refused
    return queue_calls.Polled(topic_id=topic_id, lease_ms=call.lease_ms, parts=parts)


async def end_poll(desk: Desk, call: queue_calls.EndPoll) -> calls.Done:
    task = desk.polls.get(call.member_id)
    if task is not None:
        task.cancel()
        return calls.Done()
    queues, member_id = desk.services.queues, MemberId(call.member_id)
    for partition in call.partitions:
        queue = queues.lead(GroupId(call.group), TopicId(call.topic_id), partition)
        if queue.is_open:
            queue.undo(member_id)
    return calls.Done()


# Tokens


async def settle_partitions(
    desk: Desk, call: queue_calls.SettlePartitions
) -> queue_calls.ClaimOutcomes:
    """Decides in all queues before it waits for any."""
    outcomes: dict[int, str] = {}
    waiting: list[tuple[list[int], LedQueue, Sequence[Outcome], Commit]] = []
    order = sorted(range(len(call.claims)), key=lambda index: call.claims[index].partition)
    for partition, group in groupby(order, key=lambda index: call.claims[index].partition):
        indexes = list(group)
        try:
            waiting.append(await _settle_one(desk, call, partition, indexes))
        except Refused as refused:
            outcomes |= dict.fromkeys(indexes, _unsettled(refused))
    for indexes, queue, found, commit in waiting:
        try:
            await commit
            if not _MEANS_NOTHING.isdisjoint(found):
                await queue.confirm()
            outcomes |= {index: str(each) for index, each in zip(indexes, found, strict=True)}
        except Refused as refused:
            outcomes |= dict.fromkeys(indexes, _unsettled(refused))
    return queue_calls.ClaimOutcomes(outcomes=[outcomes[index] for index in sorted(outcomes)])


async def _settle_one(
    desk: Desk, call: queue_calls.SettlePartitions, partition: int, indexes: list[int]
) -> tuple[list[int], LedQueue, Sequence[Outcome], Commit]:
    topic_id = TopicId(call.topic_id)
    led = await opened(desk, topic_id, call.group, [partition])
    if not led:
        raise Refused(Reason.GROUP_ID_NOT_FOUND)
    (queue,) = led
    claims = [
        Claim(each.offset, each.attempt, each.proof)
        for each in (call.claims[index] for index in indexes)
    ]
    lease_ms = call.lease_ms or queue.settings.lease_ms
    found, commit = settle(
        queue, Verb(call.verb), claims, lease_ms=lease_ms, delay_ms=call.delay_ms
    )
    return indexes, queue, found, commit


def _unsettled(refused: Refused) -> str:
    """A queue that nobody ever asked for has given no token."""
    is_missing = refused.reason is Reason.GROUP_ID_NOT_FOUND
    return str(Outcome.UNKNOWN) if is_missing else UNAVAILABLE


# Looking


async def peek_partitions(desk: Desk, call: queue_calls.PeekPartitions) -> queue_calls.Peeked:
    queues, parts = desk.services.queues, []
    left, bytes_left = call.records_max, call.bytes_max
    topic_id = TopicId(call.topic_id)
    led = await opened(desk, topic_id, call.group, call.partitions)
    for queue in led:
        if left <= 0 or bytes_left <= 0:
            break
        batches, ranges = await _peek(queues, queue, left, bytes_left)
        if not ranges:
            continue
        left -= sum(last - first + 1 for first, last, _ in ranges)
        bytes_left -= len(batches)
        part = queue_calls.PeekedPart(partition=queue.key.partition, batches=batches, ranges=ranges)
        parts.append(part)
    return queue_calls.Peeked(parts=parts, is_there=bool(led))


async def _peek(
    queues: Queues, queue: LedQueue, records_max: int, bytes_max: int
) -> tuple[bytes, list[tuple[int, int, int]]]:
    found = await _next_batches(queues, queue, bytes_max)
    if found is None:
        return b"", []
    try:
        ranges = list(_free(queue.machine, found.spans, records_max))
        return found.range.read(), ranges
    finally:
        found.range.release()


async def _next_batches(queues: Queues, queue: LedQueue, bytes_max: int) -> Found | None:
    """What would be delivered next. It is in memory by then."""
    first = queue.machine.first_available()
    if first >= queue.log.high_watermark:
        return None
    copiers = queue.machine.letters.copiers
    first = max(first, queue.log.log_start_offset)
    return await queues.reads.read(queues.replica_of(queue), first, bytes_max, copiers)


def _free(
    machine: ShareMachine, spans: Sequence[tuple[int, int]], records_max: int
) -> Iterator[tuple[int, int, int]]:
    """Of these batches what could be delivered."""
    left = records_max
    for first, last in spans:
        known = [
            (each.first, each.last, each.attempts)
            for each in machine.available_between(first, min(last, machine.end - 1))
        ]
        new = [(max(first, machine.end), last, 0)] if last >= machine.end else []
        for start, end, attempts in [*known, *new]:
            if left <= 0:
                return
            end = min(end, start + left - 1)
            yield start, end, attempts
            left -= end - start + 1


async def stat_partitions(desk: Desk, call: queue_calls.StatPartitions) -> queue_calls.QueueState:
    queues, topic_id = desk.services.queues, TopicId(call.topic_id)
    led = await opened(desk, topic_id, call.group, call.partitions)
    partitions = [await _stat(queues, queue) for queue in led]
    return queue_calls.QueueState(
        partitions=partitions,
        is_paused=any(queue.settings.is_paused for queue in led),
        oldest_age_ms=-1,
    )


async def _stat(queues: Queues, queue: LedQueue) -> queue_calls.QueuePartition:
    # Before anything is counted: it may wait for the disk.
    oldest_ms = await _oldest_ms(queues, queue)
    machine = queue.machine
    new = max(0, queue.log.high_watermark - machine.end)
    return queue_calls.QueuePartition(
        partition=queue.key.partition,
        ready=machine.available_count + new,
        leased=machine.leased_count,
        delayed=machine.delayed_count,
        blocked=machine.blocked_count,
        dying=machine.dying_count,
        dead=machine.letters.sent_count,
        redriven=machine.letters.redriven_count,
        oldest_ms=oldest_ms,
        expired=queue.expired_count,
    )


async def _oldest_ms(queues: Queues, queue: LedQueue) -> int:
    """By the batch of the first record that can be delivered."""
    found = await _next_batches(queues, queue, 1)
    if found is None:
        return -1
    try:
        header = parse_header(found.range.file.pread(HEADER_SIZE, found.range.position))
    finally:
        found.range.release()
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return header.max_timestamp if is_append_time else header.base_timestamp


# Operating


async def purge_partitions(desk: Desk, call: queue_calls.PurgePartitions) -> queue_calls.Purged:
    topic_id = TopicId(call.topic_id)
    led = await opened(desk, topic_id, call.group, call.partitions, makes=True)
    count, commits = 0, []
    for queue in led:
        end = max(queue.log.high_watermark, queue.machine.end)
        count += _waiting(queue, end)
        change = queue.machine.decide_purged(end, queue.settings)
        commits.append(queue.decide(lambda _, change=change: change))  # type: ignore[misc]
    for commit in commits:
        await commit
    return queue_calls.Purged(count=count)


def _waiting(queue: LedQueue, end: int) -> int:
    machine = queue.machine
    known = machine.available_count + machine.delayed_count + machine.blocked_count
    return known + end - machine.end


METHODS = (
    Method(queue_calls.MakeQueues, make_queues),
    Method(queue_calls.PollPartitions, poll_partitions),
    Method(queue_calls.EndPoll, end_poll),
    Method(queue_calls.SettlePartitions, settle_partitions),
    Method(queue_calls.PeekPartitions, peek_partitions),
    Method(queue_calls.StatPartitions, stat_partitions),
    Method(queue_calls.PurgePartitions, purge_partitions),
)
