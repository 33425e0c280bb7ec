"""Following a topic: Subscribe, which pushes records against credits and commits positions.

A reader of requests and a pusher of records work side by side. Nothing is buffered for a slow
client: while there is no credit nothing is read, and what was read before is bounded.
"""

import asyncio
from collections import deque
from typing import Any

from penstock.broker.doors.calls import (
    CommitGroupOffsets,
    GroupOffset,
    ReadGroupOffsets,
    TopicInfo,
)
from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.context import Context, Conversation
from penstock.frontdoor.grpc.read import find_offset
from penstock.frontdoor.grpc.statuses import invalid
from penstock.frontdoor.grpc.translation import (
    add_records,
    fitting,
    record_bytes,
    to_partition,
    to_place,
)
from penstock.frontdoor.remote.following import Following
from penstock.frontdoor.remote.reading import LATEST, Chunk

Positions = dict[int, int]


async def subscribe(
    context: Context, conversation: Conversation[messages.SubscribeRequest]
) -> None:
    with context.stream():
        requests = conversation.requests()
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            raise invalid("start", "The first message must be `start`.")
        start = first.start
        topic = await context.parts.topics.find(start.topic)
        positions = await _positions(context, topic, start)
        subscription = _Subscription(context, conversation, topic, start, positions)
        subscription.grant(start.credit)
        tasks = [
            asyncio.ensure_future(subscription.listen(requests)),
            asyncio.ensure_future(subscription.push()),
        ]
        try:
            # The reader of requests ends when the client has said all: then so does the call.
            await context.first_of(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            subscription.close()


async def _positions(
    context: Context, topic: TopicInfo, start: messages.StartSubscription
) -> Positions:
    """Where each partition starts: as the client says, else as the group committed, else at the
    place for all."""
    partitions = _partitions(topic, start)
    place = to_place(start.start, LATEST)
    found: Positions = {}
    if start.group:
        committed = await context.parts.broker.ask(ReadGroupOffsets(group_id=start.group))
        found = {
            each.partition: each.offset for each in committed.offsets if each.topic == topic.name
        }
    for each in start.positions:
        partition = to_partition(topic, each.partition, "start.positions")
        if each.offset < 0:
            raise invalid("start.positions", "An offset is 0 or more.")
        found[partition] = each.offset
    missing = [partition for partition in partitions if partition not in found]
    starts = await asyncio.gather(
        *(find_offset(context, topic, partition, place) for partition in missing)
    )
    found.update(zip(missing, starts, strict=True))
    return {partition: found[partition] for partition in partitions}


def _partitions(topic: TopicInfo, start: messages.StartSubscription) -> list[int]:
    given = [to_partition(topic, each, "start.partitions") for each in start.partitions]
    partitions = sorted(set(given)) or list(range(topic.partitions))
    if len(partitions) > limits.PARTITIONS_MAX:
        detail = (
            f"{len(partitions)} partitions are too many: a subscription follows at most "
            f"{limits.PARTITIONS_MAX}."
        )
        raise invalid("start.partitions", detail)
    return partitions


class _Subscription:
    def __init__(
        self,
        context: Context,
        conversation: Conversation[messages.SubscribeRequest],
        topic: TopicInfo,
        start: messages.StartSubscription,
        positions: Positions,
    ) -> None:
        self._context = context
        self._conversation = conversation
        self._topic = topic
        self._start = start
        self._group = start.group
        self._positions = positions
        self._following = Following(
            context.parts.reader,
            topic,
            records_max=limits.PUSHED_RECORDS_MAX,
            bytes_max=limits.PUSHED_BYTES_MAX,
        )
        self._credit = 0
        # What was read and not pushed yet, in order.
        self._held: deque[tuple[int, Chunk]] = deque()
        self._held_bytes = 0
        # Partitions of which nothing is being read or held.
        self._idle = set(positions)
        self._to_commit: Positions = {}
        self._committing: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What the client says

    async def listen(self, requests: Any) -> None:
        async for request in requests:
            kind = request.WhichOneof("request")
            if kind == "credit":
                self.grant(request.credit)
            elif kind == "commit":
                self._commit(request.commit)
            else:
                raise invalid("request", "After the first message come credits and commits.")
        if self._committing is not None:
            await self._committing

    def grant(self, credit: int) -> None:
        if credit < 0 or self._credit + credit > limits.CREDIT_MAX:
            raise invalid("credit", f"It must be 0 or more, and all of it {limits.CREDIT_MAX:,}.")
        self._credit += credit
        self._wake()

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    # Commits

    def _commit(self, commit: messages.Positions) -> None:
        if not self._group:
            raise invalid("commit", "The subscription has no group.")
        for each in commit.positions:
            if each.partition not in self._positions or each.offset < 0:
                detail = f"Partition {each.partition} at {each.offset} can't be committed here."
                raise invalid("commit.positions", detail)
            self._to_commit[each.partition] = each.offset
        if self._committing is None or self._committing.done():
            self._committing = asyncio.ensure_future(self._commit_all())
            self._committing.add_done_callback(lambda _: self._wake())

    async def _commit_all(self) -> None:
        """One at a time: what comes meanwhile shares the next."""
        while self._to_commit:
            positions, self._to_commit = self._to_commit, {}
            offsets = [
                GroupOffset(topic=self._topic.name, partition=partition, offset=offset)
                for partition, offset in positions.items()
            ]
            call = CommitGroupOffsets(group_id=self._group, offsets=offsets)
            await self._context.parts.broker.ask(call)
            await self._send(messages.SubscribeReply(committed=_to_positions(positions)))

    # Pushing

    async def push(self) -> None:
        await self._send(messages.SubscribeReply(started=_to_positions(self._positions)))
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            self._raise_failed_commit()
            if loop.time() - looked_at >= limits.GROWTH_LOOK_S:
                looked_at = loop.time()
                await self._take_on()
            if self._credit and self._held:
                await self._push_next()
                continue
            self._read_on()
            for partition, chunk in await self._following.next([self._news], limits.GROWTH_LOOK_S):
                self._hold(partition, chunk)
            if self._news.done():
                self._news = loop.create_future()

    async def _take_on(self) -> None:
        """Begins with partitions that the topic has got since, if all are followed."""
        if self._start.partitions:
            return
        topic = await self._context.parts.topics.find(self._topic.name)
        for partition in _partitions(topic, self._start):
            if partition not in self._positions:
                self._positions[partition] = 0
                self._idle.add(partition)

    def _raise_failed_commit(self) -> None:
        if self._committing is not None and self._committing.done():
            self._committing.result()

    def _read_on(self) -> None:
        if not self._credit:
            return
        for partition in self._idle:
            self._following.read(partition, self._positions[partition])
        self._idle.clear()

    def _hold(self, partition: int, chunk: Chunk) -> None:
        if not chunk.records:
            self._positions[partition] = chunk.next_offset
            self._idle.add(partition)
            return
        self._held.append((partition, chunk))
        self._held_bytes += sum(map(record_bytes, chunk.records))
        if self._held_bytes > limits.HELD_BYTES_MAX and not self._credit:
            # Others may be read when the client takes more.
            self._following.close()
            self._idle = set(self._positions) - {held for held, _ in self._held}

    async def _push_next(self) -> None:
        partition, chunk = self._held.popleft()
        records = chunk.records[: self._credit]
        records = records[: fitting(records)]
        self._credit -= len(records)
        self._held_bytes -= sum(map(record_bytes, records))
        is_cut = len(records) < len(chunk.records)
        next_offset = records[-1].offset + 1 if is_cut else chunk.next_offset
        self._positions[partition] = next_offset
        if is_cut:
            rest = chunk._replace(records=chunk.records[len(records) :])
            self._held.appendleft((partition, rest))
        else:
            self._idle.add(partition)
            # The next ones come while these are sent.
            self._read_on()
        pushed = messages.PartitionRecords(
            partition=partition, next_offset=next_offset, high_watermark=chunk.high_watermark
        )
        add_records(pushed.records, records)
        await self._send(messages.SubscribeReply(records=pushed))

    async def _send(self, reply: messages.SubscribeReply) -> None:
        async with self._sending:
            await self._conversation.send(reply)

    def close(self) -> None:
        self._following.close()
        if self._committing is not None:
            self._committing.cancel()


def _to_positions(positions: Positions) -> messages.Positions:
    return messages.Positions(
        positions=[
            messages.Position(partition=partition, offset=offset)
            for partition, offset in positions.items()
        ]
    )
