"""A lone node whose group has a dead-letter topic."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.broker.queues import AckType
from penstock.cluster.config_decisions import TopicResource
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from penstock.records.batch import decode_records, parse_header
from penstock.records.record import Record
from tests.unit.broker.queue_rig import EARLIEST, TOPIC, G, QueueNode, leased
from tests.unit.lone_node import run
from tests.waiting import until

DLQ = "dlq.jobs"
LETTERS = {"errors.deadletterqueue.topic.name": DLQ}


class LettersNode(QueueNode):
    """Its group has a dead-letter topic, which is made when it is needed."""

    @classmethod
    async def with_letters(cls, path: Path, *, clock: Clock | None = None, **configs: str) -> Any:
        node = await cls.begin(path, clock=clock)
        named = {name.replace("_", "."): text for name, text in configs.items()}
        await node.set_group(**EARLIEST, **LETTERS, **named)
        return node

    async def reject(self, first: int, last: int) -> None:
        assert await self.acknowledge(first, last, AckType.REJECT) is None

    async def give_up(self, *values: bytes) -> None:
        """Sends them, and rejects them all."""
        await self.send(*values)
        answer = await self.poll()
        for each in answer.ranges:
            await self.reject(each.first, each.last)
        leased(answer)

    def letters(self, topic: str = DLQ, partition: int = 0) -> list[Record]:
        try:
            replica = self.partitions.get(TopicName(topic), partition)
            replica.check_leader()
        except Refused:
            # It is not there yet.
            return []
        records: list[Record] = []
        offset = replica.log_start_offset
        while offset < replica.high_watermark:
            found = replica.read(offset, 1_000_000)
            assert found is not None
            data = found.read()
            found.release()
            while data:
                header = parse_header(data)
                records += decode_records(data[: header.size])
                offset, data = header.next_offset, data[header.size :]
        return records

    def values(self, topic: str = DLQ) -> list[bytes | None]:
        return [record.value for record in self.letters(topic)]

    @property
    def led(self) -> Any:
        return self.queues.lead(G, self.topic_id, 0)

    def is_settled(self) -> bool:
        return self.led.is_open and not self.led.machine.has_letters

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    async def create_config(self, topic: str, **configs: str) -> None:
        assert await self.cluster.replace_configs([(TopicResource(topic), configs)]) == [None]

    async def until_sent(self, count: int) -> None:
        await until(lambda: len(self.letters()) >= count)
        await until(self.is_settled)

    @property
    def trouble(self) -> str:
        return self.queues._letters.trouble_of(self.led)


def header(record: Record, name: str) -> str:
    (value,) = [value for found, value in record.headers if found == f"__dlq.errors.{name}"]
    assert value is not None
    return value.decode()


def on_node(scenario: Callable[[Any], Any], path: Path, **configs: str) -> None:
    async def whole() -> None:
        node = await LettersNode.with_letters(path, **configs)
        await scenario(node)
        node.node.partitions.get(TopicName(TOPIC), 0).validate()
        await node.stop()

    run(whole)


class Publishing:
    """Between a carrier and the topic: a test decides what becomes of a batch."""

    def __init__(self, node: LettersNode) -> None:
        self._letters = node.queues._letters
        self._publisher = self._letters.publisher
        self.batches: list[bytes] = []
        self.refused_before: list[Refused] = []
        self.refused_after: list[Refused] = []
        # The first ones are not refused before they are appended.
        self.spared = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._letters.publisher = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    async def publish(self, topic_id: Any, partition: int, batch: bytes, deadline: float) -> int:
        self.batches.append(batch)
        await self.goes_on.wait()
        if self.refused_before and len(self.batches) > self.spared:
            raise self.refused_before.pop(0)
        offset = await self._publisher.publish(topic_id, partition, batch, deadline)
        if self.refused_after:
            raise self.refused_after.pop(0)
        return offset


LATE = Refused(Reason.REQUEST_TIMED_OUT, "nobody knows")
