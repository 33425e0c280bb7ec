"""Proves that a client at the wrong broker learns the right one in the same answer (KIP-951)."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import UUID

import pytest

from penstock.broker.fetch import Fetch
from penstock.broker.produce import Produce
from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
from penstock.frontdoor.kafka.handlers import fetch, produce
from penstock.model.limits import Limits
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.broker.lone_leaderships import (
    TOPIC,
    TOPIC_ID,
    MadeUpCluster,
    broker,
    topic_on,
)
from tests.unit.frontdoor.cluster_world import World
from tests.unit.replication.rig import batch

ZERO = UUID(int=0)
WRONG = ErrorCode.NOT_LEADER_OR_FOLLOWER


def world() -> World:
    """Broker 1 holds nothing: both partitions are led by others, one of whom is unknown here."""
    topic = topic_on((2, 3), (3, 2), (2, 3))
    cluster = MadeUpCluster(broker(1), broker(2, "b"), topics=(topic,))
    cluster.announce(0, leader=2, term=7, in_sync=(2,))
    cluster.announce(1, leader=2, term=8, in_sync=(2,))
    here = World(cluster)
    partitions = cluster.partitions
    here.services.produce = Produce(partitions=partitions, clock=here.services.clock)
    here.services.fetch = Fetch(
        partitions=partitions,
        limits=Limits(),
        executor=ThreadPoolExecutor(1),
    )
    here.peer.fetch_sessions = FetchSessions(
        make_reader=here.services.fetch.reader, clock=here.services.clock, sessions_max=10
    )
    return here


def produced(version: int, *indexes: int, acks: int = -1) -> ProduceRequest:
    topic = TopicProduceData(
        name=TOPIC if version < 13 else "",
        topic_id=TOPIC_ID if version >= 13 else ZERO,
        partition_data=[
            PartitionProduceData(index=index, records=batch(b"x")) for index in indexes
        ],
    )
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


def fetched(version: int, *indexes: int) -> FetchRequest:
    topic = FetchTopic(
        topic=TOPIC if version < 13 else "",
        topic_id=TOPIC_ID if version >= 13 else ZERO,
        partitions=[
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000)
            for index in indexes
        ],
    )
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=10_000, topics=[topic])


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("indexes", [(0,), (0, 1, 2)])
def test_a_produce_is_sent_on(version: int, indexes: tuple[int, ...]) -> None:
    answer = world().ask(produce.API, version, produced(version, *indexes))
    answers = answer.responses[0].partition_responses
    assert [each.error_code for each in answers] == [WRONG] * len(indexes)
    if version < 10:
        assert answer.node_endpoints == []
        return
    hints = [each.current_leader and each.current_leader.leader_id for each in answers]
    assert hints == [2, 2, None][: len(indexes)]
    assert answers[0].current_leader.leader_epoch == 7
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
        (2, "host-2", 9094, "b")
    ]


@pytest.mark.parametrize("version", [4, 11, 12, 15, 16, 17, 18])
def test_a_fetch_is_sent_on_at_once(version: int) -> None:
    answer = world().ask(fetch.API, version, fetched(version, 0, 1, 2))
    data = answer.responses[0].partitions
    assert [each.error_code for each in data] == [WRONG] * 3
    hints = [each.current_leader and each.current_leader.leader_epoch for each in data]
    assert hints == ([7, 8, None] if version >= 16 else [None] * 3)
    assert [each.node_id for each in answer.node_endpoints] == ([2] if version >= 16 else [])


def test_a_follower_that_serves_nobody_sends_readers_to_its_leader() -> None:
    here = world()
    replica = here.cluster.partitions.put(0, leads=False, term=9, leader=2)
    replica.needs_index = lambda offset: False
    replica.check_epoch = lambda term: None
    replica.high_watermark = replica.log_start_offset = 0
    replica.config = SimpleNamespace(compression_type="producer")
    answer = here.ask(fetch.API, 16, fetched(16, 0))
    (data,) = answer.responses[0].partitions
    assert data.error_code == WRONG
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 9)


def test_what_does_not_exist_is_no_matter_of_leaders() -> None:
    answer = world().ask(produce.API, 12, produced(12, 9))
    (only,) = answer.responses[0].partition_responses
    assert only.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only.current_leader is None
    assert answer.node_endpoints == []
