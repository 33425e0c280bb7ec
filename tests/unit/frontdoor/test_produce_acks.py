"""Proves what each kind of acknowledgement waits for, and how its failure is told."""

import asyncio
from typing import Any

import pytest

from penstock.broker.later import Later
from penstock.broker.produce import Produce
from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.handlers import produce
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.replication.commit import Commit
from penstock.replication.replica import Appended
from tests.unit.broker.lone_leaderships import TOPIC, MadeUpCluster, broker, topic_on
from tests.unit.frontdoor.cluster_world import World
from tests.unit.replication.rig import batch

VERSION = 12


class Leader:
    """Broker 1 leads two partitions, whose replicas let tests settle their appends."""

    def __init__(self) -> None:
        self.cluster = MadeUpCluster(broker(1), broker(2), topics=(topic_on((1, 2), (1, 2)),))
        self.done, self.stored = Commit(), Commit()
        self.acks_all: list[bool] = []
        self.refused: Refused | None = None
        for index in range(2):
            replica = self.cluster.partitions.put(index, leads=True, term=3, leader=1)
            replica.append = self._append
        self.world = World(self.cluster)
        self.world.services.produce = Produce(
            partitions=self.cluster.partitions, clock=self.world.services.clock
        )

    def _append(self, batches: Any, *, many: bool, acks_all: bool, expected: None) -> Appended:
        self.acks_all.append(acks_all)
        if self.refused is not None:
            raise self.refused
        return Appended(7, -1, 0, self.done, self.stored)

    def request(self, acks: int, *indexes: int) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=batch(b"x")) for index in indexes]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)

    def ask(self, acks: int, *indexes: int) -> "asyncio.Future[Any]":
        call = Call(self.world.services, 0, VERSION, None, self.world.peer, 1.0)
        request = self.request(acks, *indexes)
        result = produce.handle(call, request)

        async def read() -> Any:
            parts = await result if isinstance(result, Later) else result
            body = produce.encode_answer(call, request, parts)
            return decode(produce.API.response, VERSION, body)

        return asyncio.ensure_future(read())


def codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.responses for each in topic.partition_responses]


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
async def test_all_waits_for_the_commit_and_one_for_the_leaders_copy(
    indexes: tuple[int, ...],
) -> None:
    leader = Leader()
    of_leader, of_all = leader.ask(1, *indexes), leader.ask(-1, *indexes)
    assert set(leader.acks_all[: len(indexes)]) == {False}
    assert set(leader.acks_all[len(indexes) :]) == {True}
    leader.stored.settle(None)
    assert codes(await of_leader) == [0] * len(indexes)
    await asyncio.sleep(0)
    assert not of_all.done()
    leader.done.settle(None)
    assert codes(await of_all) == [0] * len(indexes)


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
async def test_leadership_lost_meanwhile_names_the_next_leader(indexes: tuple[int, ...]) -> None:
    leader = Leader()
    waiting = leader.ask(-1, *indexes)
    leader.cluster.announce(0, leader=2, term=4, in_sync=(2,))
    leader.done.settle(Refused(Reason.NOT_LEADER_OR_FOLLOWER))
    answer = await waiting
    assert codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(indexes)
    first = answer.responses[0].partition_responses[0]
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (2, 4)
    assert [each.node_id for each in answer.node_endpoints] == [2]


@pytest.mark.parametrize("error", [None, Refused(Reason.NOT_LEADER_OR_FOLLOWER)])
@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
async def test_what_is_settled_at_once_is_answered_at_once(
    indexes: tuple[int, ...], error: Refused | None
) -> None:
    """An append may lose the leadership, or meet a failed disk, before it returns."""
    leader = Leader()
    leader.done.settle(error)
    answer = await leader.world.answer(produce.API, VERSION, leader.request(-1, *indexes))
    expected = 0 if error is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes(answer) == [expected] * len(indexes)


async def test_too_few_replicas_are_told_before_or_after_the_append() -> None:
    leader = Leader()
    waiting = leader.ask(-1, 0)
    leader.done.settle(Refused(Reason.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert codes(await waiting) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    leader.refused = Refused(Reason.NOT_ENOUGH_REPLICAS)
    answer = await leader.world.answer(produce.API, VERSION, leader.request(-1, 0))
    assert codes(answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]
