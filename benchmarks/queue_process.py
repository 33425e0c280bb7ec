"""Producers and consumers of queues as light as they can be, each in a process of its own.

A producer sends batches that were built before. A consumer takes records of a share group (KIP-932)
and acks what it has with its next fetch, without a look at the records. Both speak the protocol
itself, so that they run in the same way against any broker, and take little of the machine.
"""

import multiprocessing
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any
from uuid import UUID

from benchmarks.probe import connect, frame, receive_frame
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.headers import decode_response_header
from penstock.protocol.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.kafka.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    JOIN_EPOCH,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.records.batch import build_batch
from penstock.records.record import Headers, Record

PRODUCE_VERSION, HEARTBEAT_VERSION, FETCH_VERSION, FIND_VERSION = 9, 1, 1, 4
BATCH = 500
SIZE = 100
IN_FLIGHT = 5
WAIT_MS = 500
HEARTBEAT_S = 2.0
JOIN_S_MAX = 60.0
JOIN_PAUSE_S = 0.1
ACCEPT = 1
# Batches that are built before and sent again and again: so many keys there are.
BATCHES = 20

MakeHeaders = Callable[[int], Headers]


# Producers


def batches_of(
    count: int, *, has_keys: bool, headers_of: MakeHeaders = lambda _: ()
) -> list[bytes]:
    """That many batches of records with a key each, if they have some."""
    now_ms = time.time_ns() // 1_000_000
    value = b"v" * SIZE
    return [
        build_batch(
            [
                Record(
                    timestamp_ms=now_ms,
                    key=b"key-%d" % (index * BATCH + number) if has_keys else None,
                    value=value,
                    headers=headers_of(index * BATCH + number),
                )
                for number in range(BATCH)
            ]
        )
        for index in range(count)
    ]


def publish(
    bootstrap: str, topic: str, partitions: int, batches: Sequence[bytes], count: int
) -> None:
    """Batches to one partition after the other, until it is enough, each acknowledged by all."""
    places = cycle(range(partitions))
    with connect(bootstrap) as connection:
        under_way = 0
        for data in islice(cycle(batches), -(-count // BATCH)):
            if under_way == IN_FLIGHT:
                _produced(connection)
                under_way -= 1
            connection.sendall(_produce(topic, next(places), data))
            under_way += 1
        for _ in range(under_way):
            _produced(connection)


def _produce(topic: str, partition: int, data: bytes) -> bytes:
    content = [PartitionProduceData(index=partition, records=data)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name=topic, partition_data=content)],
    )
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def _produced(connection: socket.socket) -> None:
    body = receive_frame(connection)
    _, start = decode_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, body)
    answer = decode(ProduceResponse, PRODUCE_VERSION, body[start:])
    codes = [one.error_code for topic in answer.responses for one in topic.partition_responses]
    assert not any(codes), f"a batch was refused: {codes}"


# Consumers


class Taker:
    """A member of a share group that takes what it gets and acks it with the next fetch."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._connection = connect(bootstrap)
        self._group, self._topic = group, topic
        self._member_id = str(uuid.uuid4())
        self._member_epoch = JOIN_EPOCH
        self._session_epoch = 0
        self._beat_at = 0.0
        # What it shall have, and what its session has.
        self._assigned: list[tuple[UUID, int]] = []
        self._places: list[tuple[UUID, int]] = []
        # By partition, of the only topic.
        self._had: dict[int, list[AcquiredRecords]] = {}

    def join(self) -> None:
        """Until it has partitions: the coordinator assigns a little after somebody came."""
        limit = time.monotonic() + JOIN_S_MAX
        # On Kafka the topic of coordinators is made by who looks for one. There is one broker.
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        self._ask(ApiKey.FIND_COORDINATOR, FIND_VERSION, request, FindCoordinatorResponse)
        while not self._assigned:
            assert time.monotonic() < limit, "nothing was assigned"
            self._beat([self._topic] if self._member_epoch == JOIN_EPOCH else None)
            time.sleep(0 if self._assigned else JOIN_PAUSE_S)

    def fetch(self, wait_ms: int = WAIT_MS, records_max: int = BATCH) -> int:
        """Acks what it had, and gives how many records it has now."""
        if time.monotonic() >= self._beat_at:
            self._beat(None)
        if self._assigned != self._places:
            # A new session names all partitions. As on Kafka, it does not end the leases of the one
            # before it.
            if self._had:
                return self._fetch(0, 0)
            self._session_epoch, self._places = 0, self._assigned
        return self._fetch(wait_ms, records_max)

    def _fetch(self, wait_ms: int, records_max: int) -> int:
        is_first = self._session_epoch == 0
        topics: dict[UUID, list[ShareFetchPartition]] = {}
        for topic_id, partition in self._places:
            acks = [_accept(one) for one in self._had.get(partition, ())]
            if is_first or acks:
                part = ShareFetchPartition(partition_index=partition, acknowledgement_batches=acks)
                topics.setdefault(topic_id, []).append(part)
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=16_000_000,
            max_records=records_max,
            batch_size=max(1, records_max),
            topics=[ShareFetchTopic(topic_id=id_, partitions=of) for id_, of in topics.items()],
        )
        answer = self._ask(ApiKey.SHARE_FETCH, FETCH_VERSION, request, ShareFetchResponse)
        assert not answer.error_code, f"a fetch was refused: {answer.error_code}"
        self._session_epoch += 1
        self.received(answer)
        self._had = {}
        for topic in answer.responses:
            for part in topic.partitions:
                codes = part.error_code, part.acknowledge_error_code
                assert not any(codes), f"partition {part.partition_index} was refused: {codes}"
                if part.acquired_records:
                    self._had[part.partition_index] = part.acquired_records
        return sum(
            one.last_offset - one.first_offset + 1 for had in self._had.values() for one in had
        )

    def received(self, answer: ShareFetchResponse) -> None:
        """For those who want to look at it."""

    def close(self) -> None:
        self._connection.close()

    def _beat(self, topics: list[str] | None) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=topics,
        )
        answer = self._ask(
            ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request, ShareGroupHeartbeatResponse
        )
        # A coordinator that is being made is asked again.
        if answer.error_code:
            time.sleep(JOIN_PAUSE_S)
            return
        self._member_epoch = answer.member_epoch
        self._beat_at = time.monotonic() + HEARTBEAT_S
        if answer.assignment is not None:
            places = [
                (each.topic_id, partition)
                for each in answer.assignment.topic_partitions
                for partition in each.partitions
            ]
            self._assigned = places

    def _ask(self, key: ApiKey, version: int, request: object, kind: type[Any]) -> Any:
        self._connection.sendall(frame(key, version, request))
        body = receive_frame(self._connection)
        _, start = decode_response_header(key, version, body)
        return decode(kind, version, body[start:])


def _accept(one: AcquiredRecords) -> AcknowledgementBatch:
    return AcknowledgementBatch(
        first_offset=one.first_offset, last_offset=one.last_offset, acknowledge_types=[ACCEPT]
    )


# Processes

_SPAWN = multiprocessing.get_context("spawn")


class Team:
    """Consumers in processes, which have joined when this is made, and begin when told."""

    def __init__(self, bootstrap: str, group: str, topic: str, size: int) -> None:
        self._counts = [_SPAWN.Value("q", 0) for _ in range(size)]
        self._begin, self._stop = _SPAWN.Event(), _SPAWN.Event()
        self._joined = _SPAWN.Semaphore(0)
        shared = (self._begin, self._stop, self._joined)
        self._processes = [
            _SPAWN.Process(target=_work, args=(bootstrap, group, topic, count, *shared))
            for count in self._counts
        ]
        for process in self._processes:
            process.start()
        for _ in self._processes:
            assert self._joined.acquire(timeout=JOIN_S_MAX), "a consumer did not join"

    def begin(self) -> None:
        self._begin.set()

    @property
    def acked(self) -> int:
        return sum(count.value for count in self._counts)

    def until(self, count: int, timeout_s: float) -> None:
        limit = time.monotonic() + timeout_s
        while self.acked < count:
            assert time.monotonic() < limit, f"only {self.acked} of {count} were acked"
            assert all(process.is_alive() for process in self._processes), "a consumer ended"
            time.sleep(0.005)

    def close(self) -> None:
        self._begin.set()
        self._stop.set()
        for process in self._processes:
            process.join(30)


def _work(
    bootstrap: str, group: str, topic: str, count: Any, begin: Any, stop: Any, joined: Any
) -> None:
    taker = Taker(bootstrap, group, topic)
    taker.join()
    joined.release()
    begin.wait()
    had = 0
    while not stop.is_set():
        now = taker.fetch()
        # What it had before is acked by now.
        count.value += had
        had = now
    taker.close()


def publisher(
    bootstrap: str, topic: str, partitions: int, batches: Sequence[bytes], count: int
) -> Any:
    """A process that is started by its caller."""
    return _SPAWN.Process(target=publish, args=(bootstrap, topic, partitions, batches, count))
