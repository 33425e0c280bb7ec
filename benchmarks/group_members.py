"""Members of consumer groups (KIP-848) as light as they can be: thousands of them in one process.

They behave as clients do. They heartbeat in their interval, do at once what an answer says and say
so, and look for their coordinator when they lose it.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

from benchmarks.probe import SIZE, frame
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.headers import decode_response_header
from penstock.protocol.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from penstock.protocol.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

VERSION = 1
FIND_VERSION = 4
REBALANCE_TIMEOUT_MS = 60_000
RETRY_S = 0.1
ANSWER_TIMEOUT_S = 30.0
_BEGIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Line:
    """One connection to the coordinator, which members share; they ask one after the other."""

    def __init__(self, bootstrap: Sequence[str], group: str) -> None:
        self._bootstrap, self._group = bootstrap, group
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Also says something, so that the broker has all that a connection needs."""
        async with self._lock:
            while self._streams is None:
                try:
                    await self._connect()
                except ConnectionError:
                    await asyncio.sleep(RETRY_S)
            await _exchange(self._streams, self._question())

    async def ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        async with self._lock:
            if self._streams is None:
                await self._connect()
            assert self._streams is not None
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    body = await _exchange(
                        self._streams, frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request)
                    )
            except (OSError, EOFError, TimeoutError):
                self.close()
                raise ConnectionError("the coordinator is gone") from None
        _, start = decode_response_header(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, body)
        answer = decode(ConsumerGroupHeartbeatResponse, VERSION, body[start:])
        if answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.close()
        return answer

    async def _connect(self) -> None:
        for address in self._bootstrap:
            try:
                found = await self._find(address)
                if found is not None:
                    self._streams = await _open(found)
                    return
            except (OSError, EOFError, TimeoutError):
                continue
        raise ConnectionError("no coordinator is known")

    def _question(self) -> bytes:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        return frame(ApiKey.FIND_COORDINATOR, FIND_VERSION, request)

    async def _find(self, address: str) -> str | None:
        streams = await _open(address)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                body = await _exchange(streams, self._question())
        finally:
            streams[1].close()
        _, start = decode_response_header(ApiKey.FIND_COORDINATOR, FIND_VERSION, body)
        (found,) = decode(FindCoordinatorResponse, FIND_VERSION, body[start:]).coordinators
        return f"{found.host}:{found.port}" if found.error_code == ErrorCode.NONE else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _open(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def _exchange(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: bytes
) -> memoryview:
    reader, writer = streams
    writer.write(data)
    (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
    return memoryview(await reader.readexactly(size))


class Member:
    def __init__(self, line: Line, group: str, member_id: str, topic: str) -> None:
        self.group, self.member_id = group, member_id
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}
        # What it said last that it owns.
        self._said: dict[UUID, list[int]] | None = None
        self.beats = 0
        # How often it was told to begin again.
        self.fenced = 0
        self.line, self._topic = line, topic

    async def run(self, interval_s: float, chance: Random, changed: Callable[[], None]) -> None:
        """For good; members are spread over the interval."""
        pause_s = chance.random() * interval_s if self.epoch else 0.0
        while True:
            await asyncio.sleep(pause_s)
            try:
                has_news = await self.beat()
            except ConnectionError:
                pause_s = RETRY_S
                continue
            changed()
            # What is given up or taken over is confirmed at once.
            pause_s = 0.0 if has_news else interval_s

    async def beat(self, epoch: int | None = None) -> bool:
        """Whether it has another assignment now."""
        epoch = self.epoch if epoch is None else epoch
        saying = self.owned
        try:
            answer = await self.line.ask(self._request(epoch))
        except ConnectionError:
            # As clients do after a lost answer: say it all again.
            self._said = None
            raise
        if answer.error_code in _BEGIN_AGAIN:
            self.epoch, self.owned, self._said = 0, {}, None
            self.fenced += 1
            return True
        if answer.error_code != ErrorCode.NONE:
            raise ConnectionError(ErrorCode(answer.error_code).name)
        self.epoch, self._said = answer.member_epoch, saying
        self.beats += 1
        if answer.assignment is None:
            return False
        owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        is_other, self.owned = owned != self.owned, owned
        return is_other

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """As short as a client's: what was said before is not repeated."""
        if epoch < 0:
            return ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=epoch
            )
        is_joining = epoch == 0
        owned = None
        if is_joining or self.owned != self._said:
            owned = [
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in self.owned.items()
            ]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining else -1,
            subscribed_topic_names=[self._topic] if is_joining else None,
            topic_partitions=[] if is_joining else owned,
        )

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for partitions in self.owned.values())
