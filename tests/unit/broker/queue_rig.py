"""A lone node with a topic, and what consumers of its queues do."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from penstock.broker.queues import (
    AckBatch,
    AckType,
    AcquiredPartition,
    AcquireQuery,
    Queues,
    WantedShare,
)
from penstock.cluster.config_decisions import GroupResource
from penstock.model.clock import Clock
from penstock.model.errors import Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, TopicId, TopicName
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.unit.lone_node import LoneNode
from tests.unit.replication.rig import batch
from tests.waiting import until

G = GroupId("workers")
M, N = MemberId("m"), MemberId("n")
TOPIC = "jobs"
FEW = {"share_coordinator_state_topic_num_partitions": "2"}
EARLIEST = {"share.auto.offset.reset": "earliest"}
PATIENCE_MS = 30_000


class QueueNode(LoneNode):
    """Its groups start at the earliest record, unless told otherwise."""

    @classmethod
    async def begin(
        cls, path: Path, *, clock: Clock | None = None, partitions: int = 1, **settings: str
    ) -> Self:
        node = await cls.start(path, clock=clock, **{**FEW, **settings})
        if node.cluster.topic(TOPIC) is None:
            # Records are of a fixed time, long ago.
            await node.create(TOPIC, partitions=partitions, retention_ms="-1")
            await node.set_group(**EARLIEST)
            await node.make_queues()
        return node

    async def make_queues(self, *group_ids: GroupId) -> None:
        """As the coordinator of the group does when a member joins it."""
        topic = self.cluster.topic(TOPIC)
        assert topic is not None
        starts = {topic.topic_id: dict.fromkeys(range(topic.partitions), -1)}
        for group_id in group_ids or (G,):
            await self.queues.initialize(group_id, starts)

    @property
    def queues(self) -> Queues:
        return self.services.queues

    @property
    def topic_id(self) -> TopicId:
        topic = self.cluster.topic(TOPIC)
        assert topic is not None
        return topic.topic_id

    def replica(self, partition: int = 0) -> Replica:
        return self.partitions.get(TopicName(TOPIC), partition)

    async def set_group(self, group_id: GroupId = G, **configs: str) -> None:
        resource = GroupResource(group_id)
        (refused,) = await self.cluster.replace_configs([(resource, configs)])
        assert refused is None, refused

    async def send(self, *values: bytes, partition: int = 0) -> None:
        """As one batch."""
        done = self.replica(partition).append(batch(*values)).done
        if done is not None:
            await done

    async def send_records(self, *records: Record, partition: int = 0) -> None:
        """As one batch."""
        done = self.replica(partition).append(build_batch(records)).done
        if done is not None:
            await done

    def ask(
        self,
        member_id: MemberId = M,
        *,
        group_id: GroupId = G,
        partitions: Sequence[int] = (0,),
        topic_id: TopicId | None = None,
        **options: Any,
    ) -> Any:
        wanted = [
            WantedShare(topic_id=topic_id or self.topic_id, partition=index, bytes_max=1_000_000)
            for index in partitions
        ]
        fields: dict[str, Any] = {
            "wait_ms_max": PATIENCE_MS,
            "bytes_min": 1,
            "bytes_max": 10_000_000,
            "records_max": 500,
            "batch_size": 500,
        }
        query = AcquireQuery(
            group_id=group_id, member_id=member_id, wanted=wanted, **{**fields, **options}
        )
        return self.queues.acquire(query)

    async def poll(self, member_id: MemberId = M, **options: Any) -> AcquiredPartition:
        """Of one partition."""
        (answer,) = await self.ask(member_id, **options)
        assert isinstance(answer, AcquiredPartition)
        return answer

    async def poll_now(self, member_id: MemberId = M, **options: Any) -> AcquiredPartition:
        return await self.poll(member_id, wait_ms_max=0, **options)

    async def open(self, *partitions: int) -> None:
        await self.ask(partitions=partitions, wait_ms_max=0)
        led = [self.queues.lead(G, self.topic_id, partition) for partition in partitions]
        await until(lambda: all(queue.is_open for queue in led))

    async def acknowledge(
        self,
        first: int,
        last: int,
        kind: AckType = AckType.ACCEPT,
        *,
        member_id: MemberId = M,
        partition: int = 0,
    ) -> Refused | None:
        place = (self.topic_id, partition)
        acks = {place: [AckBatch(first=first, last=last, types=(kind,))]}
        return (await self.queues.acknowledge(G, member_id, acks))[place]


def data_of(answer: AcquiredPartition) -> bytes:
    if answer.records is None:
        return b""
    if isinstance(answer.records, FileRange):
        data = answer.records.read()
        answer.records.release()
        return data
    return answer.records


def leased(answer: AcquiredPartition) -> list[bytes | None]:
    """The values of the records that the consumer was given."""
    data, position = data_of(answer), 0
    values: list[bytes | None] = []
    while position < len(data):
        header = parse_header(data, position)
        records = decode_records(data[position : position + header.size])
        values += [record.value for record in records if is_leased(answer, record.offset)]
        position += header.size
    return values


def is_leased(answer: AcquiredPartition, offset: int) -> bool:
    return any(each.first <= offset <= each.last for each in answer.ranges)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
