"""Proves what the data handlers answer in every version, down to the bytes."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.broker.fetch import Fetch
from penstock.broker.later import Later
from penstock.broker.offsets import Offsets
from penstock.broker.produce import Produce
from penstock.broker.producers import Producers
from penstock.frontdoor.kafka.api import Api, Body, Call, Memory
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
from penstock.frontdoor.kafka.handlers import (
    delete_records,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import LogIndex, TopicName
from penstock.model.topic_config import TimestampType, TopicConfig
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from penstock.protocol.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from penstock.protocol.kafka.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.compression import Codec
from penstock.records.legacy import build_message
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.unit.broker.lone_leaderships import lone_leaderships
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import (
    START_MS,
    TOPIC,
    TOPIC_ID,
    batch,
    read_values,
    values_of,
)

ZERO = UUID(int=0)


class Ids:
    async def allocate_producer_ids(self) -> range:
        return range(4_000, 5_000)


class Door:
    """The use cases, as a connection would reach them."""

    def __init__(self, node: Node) -> None:
        self.id = 1
        self.peer_host, self.peer_port = "127.0.0.1", 1
        self.produce = Produce(partitions=node.partitions, clock=node.clock)
        self.fetch = Fetch(partitions=node.partitions, limits=node.limits, executor=node.disk)
        self.fetch_sessions = FetchSessions(
            make_reader=self.fetch.reader, clock=node.clock, sessions_max=10
        )
        self.offsets = Offsets(leaderships=lone_leaderships(node.partitions))
        self.producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=Ids())
        self.leaderships = lone_leaderships(node.partitions)
        self._clock = node.clock
        self.memory: Memory | None = None

    async def ask(self, api: Api, version: int, request: Any) -> Any:
        """Through the wire in both directions, so that a version can't hold what it has not."""
        now = self._clock.monotonic()
        call = Call(cast(Any, self), api.key, version, "test", cast(Any, self), now)
        request = api.decode(call, memoryview(encode(request, version)), 0, api.request)
        try:
            result = api.handle(call, request)
            if isinstance(result, Later) or asyncio.iscoroutine(result):
                result = await result
            body = api.encode(call, request, result)
        except Refused as refused:
            result = api.refusal(call, request, error_code(refused))
            if result is None:
                return None
            body = encode(result, version)
        return decode(api.response, version, to_bytes(body)) if body else None


def to_bytes(parts: Body) -> bytes:
    if isinstance(parts, bytes):
        return parts
    body = b""
    for part in parts:
        if isinstance(part, FileRange):
            body += part.read()
            part.release()
        else:
            body += part
    return body


def produce_request(version: int, records: bytes, *, acks: int = -1, index: int = 0) -> Any:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                topic_id=TOPIC_ID if version >= 13 else ZERO,
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def records_for(version: int, value: bytes) -> bytes:
    record = Record(timestamp_ms=START_MS, key=b"k", value=value)
    if version < 3:
        return build_message(record, magic=0 if version < 2 else 1)
    return build_batch([record])


def only_partition(response: ProduceResponse) -> PartitionProduceResponse:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_produce_appends(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        door = Door(node)
        for number in range(3):
            value = b"%d" % number
            request = produce_request(version, records_for(version, value))
            response = await door.ask(produce.API, version, request)
            answer = only_partition(response)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert answer.log_append_time_ms == -1
            assert answer.log_start_offset == (0 if version >= 5 else -1)
            assert response.responses[0].name == (TOPIC if version < 13 else "")
        assert read_values(replica) == [b"0", b"1", b"2"]
        missing = produce_request(version, records_for(version, b"x"), index=7)
        answer = only_partition(await door.ask(produce.API, version, missing))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.base_offset == -1


async def test_several_partitions_are_answered_together(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        damaged = bytearray(batch(b"x"))
        damaged[-1] ^= 1
        request = produce_request(9, batch(b"a"))
        request.topic_data[0].partition_data += [
            PartitionProduceData(index=1, records=bytes(damaged)),
            PartitionProduceData(index=1, records=batch(b"b")),
            PartitionProduceData(index=2, records=batch(b"c")),
            PartitionProduceData(index=0, records=None),
        ]
        response = await Door(node).ask(produce.API, 9, request)
        answers = response.responses[0].partition_responses
        assert [answer.error_code for answer in answers] == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_RECORD,
        ]
        assert answers[1].error_message == "the checksum does not match"
        assert read_values(node.partitions.get(TOPIC, 1)) == [b"b"]


async def test_append_times_reach_the_producer(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica(TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
        for version in (2, 7):
            request = produce_request(version, records_for(version, b"x"))
            answer = only_partition(await Door(node).ask(produce.API, version, request))
            assert answer.log_append_time_ms == START_MS


async def test_without_acks_there_is_no_answer_and_a_refusal_costs_the_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        door = Door(node)
        request = produce_request(9, batch(b"a"), acks=0)
        assert await door.ask(produce.API, 9, request) is None
        refused = produce_request(9, b"rubbish", acks=0)
        call = Call(cast(Any, door), produce.API.key, 9, "test", cast(Any, door), 0.0)
        parts = produce.handle(call, refused)
        assert isinstance(parts, list)
        with pytest.raises(Refused):
            produce.encode_answer(call, refused, parts)
        await replica.committed()
        assert read_values(replica) == [b"a"]


async def test_what_produce_refuses_as_a_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        door = Door(node)
        for acks in (2, -2):
            request = produce_request(9, batch(b"a"), acks=acks)
            answer = only_partition(await door.ask(produce.API, 9, request))
            assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        request = produce_request(9, batch(b"a"))
        request.transactional_id = "payments"
        answer = only_partition(await door.ask(produce.API, 9, request))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_keyless_records_of_a_compacted_topic_are_named(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica(TopicConfig(cleanup_compact=True))
        request = produce_request(9, batch(b"a", b"b", key=None))
        answer = only_partition(await Door(node).ask(produce.API, 9, request))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [0, 1]


async def test_zstd_needs_a_version_that_knows_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        records = build_batch([Record(value=b"x")], codec=Codec.ZSTD)
        for version, code in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)):
            request = produce_request(version, records)
            answer = only_partition(await Door(node).ask(produce.API, version, request))
            assert answer.error_code == code


def test_overload_is_told_so_that_every_client_tries_again(tmp_path: Path) -> None:
    answer = PartitionProduceResponse(index=0)
    produce._refuse(answer, 9, Refused(Reason.THROTTLED, "full"))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    produce._refuse(answer, 9, Refused(Reason.STORAGE_ERROR, "full"))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    produce._refuse(answer, 3, Refused(Reason.STORAGE_ERROR, "full"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def fetch_request(version: int, offset: int = 0, **options: Any) -> Any:
    options = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, **options}
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
    topic = FetchTopic(
        topic=TOPIC, topic_id=TOPIC_ID if version >= 13 else ZERO, partitions=[partition]
    )
    return FetchRequest(topics=[topic], **options)


@pytest.mark.parametrize("version", range(19))
async def test_every_version_of_fetch_reads(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for value in (b"a", b"b"):
            replica.append(batch(value))
        await replica.committed()
        door = Door(node)
        response = await door.ask(fetch.API, version, fetch_request(version))
        (topic,) = response.responses
        (data,) = topic.partitions
        assert (data.error_code, data.high_watermark) == (0, 2)
        records = bytes(data.records)
        if version < 4:
            assert records[16] == (0 if version < 2 else 1)
            assert records.endswith(b"b")
        else:
            assert values_of(records) == [b"a", b"b"]
            assert (data.last_stable_offset, data.aborted_transactions) == (2, None)
        response = await door.ask(fetch.API, version, fetch_request(version, offset=9))
        (data,) = response.responses[0].partitions
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.high_watermark, bytes(data.records)) == (-1, b"")


async def test_a_fetch_session_over_the_wire(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        door = Door(node)
        opened = await door.ask(fetch.API, 12, fetch_request(12, session_epoch=0))
        assert opened.session_id > 0
        quiet = FetchRequest(min_bytes=1, session_id=opened.session_id, session_epoch=1)
        response = await door.ask(fetch.API, 12, quiet)
        assert (response.session_id, response.responses) == (opened.session_id, [])
        replica.append(batch(b"a"))
        await replica.committed()
        quiet.session_epoch = 2
        response = await door.ask(fetch.API, 12, quiet)
        assert values_of(bytes(response.responses[0].partitions[0].records)) == [b"a"]
        response = await door.ask(fetch.API, 12, quiet)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        quiet.session_epoch = 3
        quiet.forgotten_topics_data = [ForgottenTopic(topic=TOPIC, partitions=[0])]
        response = await door.ask(fetch.API, 12, quiet)
        assert (response.session_id, response.error_code) == (0, 0)
        response = await door.ask(fetch.API, 12, quiet)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_long_poll_is_answered_when_records_come(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        request = fetch_request(13, max_wait_ms=20_000, isolation_level=1)
        poll = asyncio.create_task(Door(node).ask(fetch.API, 13, request))
        await asyncio.sleep(0.02)
        replica.append(batch(b"news"))
        response: FetchResponse = await poll
        (data,) = response.responses[0].partitions
        assert values_of(bytes(data.records or b"")) == [b"news"]
        assert data.aborted_transactions == []


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
async def test_a_fetch_that_comes_again_is_answered_like_a_new_one(
    tmp_path: Path, version: int
) -> None:
    """Whatever happened between the two: only what may be new is looked at."""
    partitions = 12
    random = Random(version)

    def ask_for(offsets: list[int]) -> FetchRequest:
        request: FetchRequest = fetch_request(version)
        request.topics[0].partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100_000)
            for index, offset in enumerate([*offsets, 0])
        ]
        return request

    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(partitions), TopicConfig())
        door, offsets = Door(node), [0] * partitions
        replicas = [node.partitions.get(TOPIC, index) for index in range(partitions)]
        for _ in range(40):
            for index in random.sample(range(partitions), random.choice((0, 1, 2, partitions))):
                match random.randrange(4) if replicas[index].is_leader else 3:
                    case 0 | 1:
                        replicas[index].append(batch(b"x" * random.randint(1, 50)))
                        await replicas[index].committed()
                    case 2:
                        await replicas[index].delete_records(-1)
                    case _:
                        offsets[index] = replicas[index].high_watermark
            if random.random() < 0.1:
                replicas[3].is_leader = not replicas[3].is_leader
                replicas[3]._watches.notify()
            request = ask_for(offsets)
            again = await door.ask(fetch.API, version, request)
            assert isinstance(door.memory, fetch.FetchMemory)
            fresh = Door(node)
            assert again == await fresh.ask(fetch.API, version, request)
            assert fresh.memory is not None
            fresh.memory.close()
        remembered = door.memory.reader
        door.memory.close()
        assert not any(len(replica._watches) for replica in replicas)
        assert len(remembered) == partitions + 1


class Nearby:
    """Knows of a follower in the rack of some partitions."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions

    def select(self, leader: Replica, rack: str, offset: int) -> int | None:
        assert (rack, offset) == ("here", 0)
        return 7 if leader.partition.partition in self.partitions else None


@pytest.mark.parametrize("version", [10, 11, 12, 13, 18])
@pytest.mark.parametrize("partitions", [2, 12])
async def test_a_consumer_is_told_of_the_follower_in_its_rack(
    tmp_path: Path, version: int, partitions: int
) -> None:
    """With every fetch, also where fetches and answers are remembered, until there is none."""
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(partitions), TopicConfig())
        replica = node.partitions.get(TOPIC, 1)
        replica.append(batch(b"a"))
        await replica.committed()
        door, nearby = Door(node), Nearby(1)
        door.fetch._selector = cast(Any, nearby)
        rack = {"rack_id": "here"} if version >= 11 else {}
        request: FetchRequest = fetch_request(version, **rack)
        request.topics[0].partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100_000)
            for index in range(partitions)
        ]
        for named, preferred in ((1, 7), (1, 7), (0, -1), (1, 7)):
            nearby.partitions = (named,) if named else ()
            response = await door.ask(fetch.API, version, request)
            data = response.responses[0].partitions[1]
            expected = preferred if version >= 11 else -1
            assert data.preferred_read_replica == expected
            assert (data.error_code, data.high_watermark) == (0, 1)
            assert (data.records == b"") is (expected == 7)
        if door.memory is not None:
            door.memory.close()


async def test_followers_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        door = Door(node)
        old = await door.ask(fetch.API, 5, fetch_request(5, replica_id=1))
        assert old.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        new = await door.ask(
            fetch.API, 15, fetch_request(15, replica_state=ReplicaState(replica_id=1))
        )
        assert new.error_code == ErrorCode.INVALID_REQUEST


def test_an_early_answer_keeps_the_session(tmp_path: Path) -> None:
    request = FetchRequest(session_id=9, session_epoch=4)
    response = fetch.refuse(cast(Any, None), request, ErrorCode.NONE)
    assert (response.session_id, response.error_code, response.responses) == (9, 0, [])


@pytest.mark.parametrize("version", range(12))
async def test_every_version_of_list_offsets(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for number in range(3):
            replica.append(batch(b"x", timestamp_ms=START_MS + number))
        await replica.committed()
        door = Door(node)
        by_name = {-1: 3, -2: 0, -3: 2, -4: 0, -5: -1, -6: -1}
        by_time = {START_MS + 1: 1, START_MS + 9: -1}
        first = {-3: 7, -4: 8, -5: 9, -6: 11, -7: 99}
        for timestamp, offset in {**by_name, **by_time, -7: None}.items():
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])]
            )
            response = await door.ask(list_offsets.API, version, request)
            (answer,) = response.topics[0].partitions
            if version < first.get(timestamp, 0):
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            elif version == 0:
                assert answer.old_style_offsets == [3 if offset == -1 else offset]
            else:
                assert (answer.error_code, answer.offset) == (0, offset)


@pytest.mark.parametrize("version", range(12))
async def test_a_partition_that_is_named_twice_is_told_once(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, [0, 1], TopicConfig())

        def asked(*indexes: int) -> ListOffsetsTopic:
            partitions = [
                ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes
            ]
            return ListOffsetsTopic(name=TOPIC, partitions=partitions)

        for topics in ([asked(1, 0, 1)], [asked(1), asked(0), asked(1)]):
            request = ListOffsetsRequest(topics=topics)
            response = await Door(node).ask(list_offsets.API, version, request)
            (topic,) = response.topics
            codes = {each.partition_index: each.error_code for each in topic.partitions}
            assert len(topic.partitions) == 2
            assert codes == {0: 0, 1: ErrorCode.INVALID_REQUEST}


async def test_where_an_epoch_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x"))
        await replica.committed()
        for version in range(5):
            partitions = [
                OffsetForLeaderPartition(partition=0, leader_epoch=replica.term),
                OffsetForLeaderPartition(partition=5, leader_epoch=replica.term),
            ]
            request = OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)]
            )
            response = await Door(node).ask(offset_for_leader_epoch.API, version, request)
            found, missing = response.topics[0].partitions
            assert (found.error_code, found.end_offset) == (0, 1)
            assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_producers_get_ids_and_are_described(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        door = Door(node)
        for version in range(7):
            request = InitProducerIdRequest(transactional_id=None)
            response = await door.ask(init_producer_id.API, version, request)
            assert (response.error_code, response.producer_epoch) == (0, 0)
            assert response.producer_id == 4_000 + version
        replica.append(batch(b"x", producer_id=4_000, epoch=0, sequence=3))
        await replica.committed()
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 1])]
        )
        response = await door.ask(describe_producers.API, 0, request)
        known, missing = response.topics[0].partitions
        assert [state.last_sequence for state in known.active_producers] == [3]
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        replica.is_leader = replica.is_settled = False
        response = await door.ask(describe_producers.API, 0, request)
        known, _ = response.topics[0].partitions
        assert len(known.active_producers) == 1, "followers know them too"
        request.topics[0].name = "no name"
        response = await door.ask(describe_producers.API, 0, request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("known", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_a_producer_with_half_an_identity_is_refused(
    tmp_path: Path, known: dict[str, int]
) -> None:
    async with running(tmp_path) as node:
        for version in range(3, 7):
            request = InitProducerIdRequest(transactional_id=None, **known)
            response = await Door(node).ask(init_producer_id.API, version, request)
            assert response.error_code == ErrorCode.INVALID_REQUEST
            assert (response.producer_id, response.producer_epoch) == (-1, -1)


async def test_records_are_deleted_up_to_an_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for _ in range(4):
            replica.append(batch(b"x"))
        await replica.committed()
        for version, offset in ((0, 1), (1, 2), (2, -1)):
            asked = [
                DeleteRecordsPartition(partition_index=0, offset=offset),
                DeleteRecordsPartition(partition_index=0, offset=99),
            ]
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=TopicName(TOPIC), partitions=asked)],
                timeout_ms=10_000,
            )
            response = await Door(node).ask(delete_records.API, version, request)
            done, refused = response.topics[0].partitions
            assert (done.error_code, done.low_watermark) == (0, offset % 5)
            assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", range(1, 12))
async def test_a_new_leader_does_not_tell_its_end_yet(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.is_settled = False
        # Or its next tick would find that it knows everything.
        monkeypatch.setattr(replica, "_leadership_index", LogIndex(10**9))
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        topics = [ListOffsetsTopic(name=TOPIC, partitions=asked)]
        response = await Door(node).ask(
            list_offsets.API, version, ListOffsetsRequest(topics=topics)
        )
        (answer,) = response.topics[0].partitions
        assert answer.error_code == (
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        )
