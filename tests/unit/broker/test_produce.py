"""Proves when a produce is answered: when all of it is safe, refused, or out of time."""

import errno
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.produce import ACKS_ALL, Part, Produce, Production, upgraded
from penstock.model.errors import Reason, Refused
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicName
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import build_batch
from penstock.records.compression import Codec
from penstock.records.legacy import build_message
from penstock.records.record import Record
from penstock.replication.commit import Commit
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import (
    START_MS,
    TOPIC,
    TOPIC_ID,
    batch,
    read_values,
)


def produce_on(node: Node) -> Produce:
    return Produce(partitions=node.partitions, clock=node.clock)


def append(produce: Produce, partition: int, value: bytes) -> Commit:
    done = produce.append(produce.find(TOPIC, NO_TOPIC_ID, partition), batch(value)).done
    assert done is not None
    return done


def refusal(call: object) -> Reason:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    return caught.value.reason


async def outcome(production: list[Part] | Production) -> list[Reason | None]:
    parts = await production if isinstance(production, Production) else production
    return [part.error and part.error.reason for part in parts]


def write(produce: Produce, timeout_s: float, *values: tuple[int, bytes]) -> Any:
    """To these partitions; gives the outcome, or something to wait for it."""
    production = produce.start(ACKS_ALL, START_MS / 1000 + timeout_s)
    for partition, value in values:
        production.append(TOPIC, NO_TOPIC_ID, partition, batch(value))
    return production.finish()


async def test_it_is_answered_when_every_partition_is_safe(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        produce = produce_on(node)
        assert await outcome(write(produce, 30, (0, b"a"), (1, b"b"))) == [None, None]
        assert await outcome(write(produce, 30, (0, b"c"))) == [None]
        assert read_values(node.partitions.get(TOPIC, 0)) == [b"a", b"c"]


async def test_each_partition_has_its_own_outcome(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        produce = produce_on(node)
        production = produce.start(ACKS_ALL, START_MS / 1000 + 30)
        production.append(TOPIC, NO_TOPIC_ID, 0, batch(b"a"))
        await node.partitions.get(TOPIC, 0).committed()
        node.faults.write_error = errno.ENOSPC
        production.append(TOPIC, NO_TOPIC_ID, 1, batch(b"b"))
        production.append(TOPIC, NO_TOPIC_ID, 2, batch(b"c"))
        assert await outcome(production.finish()) == [
            None,
            Reason.STORAGE_ERROR,
            Reason.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_a_disk_that_hangs_is_answered_with_a_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        produce = produce_on(node)
        node.faults.writes_go_on.clear()
        one = write(produce, 1, (0, b"a"))
        several = write(produce, 1, (0, b"b"), (0, b"c"))
        node.clock.ms += 1_001
        assert await outcome(one) == [Reason.REQUEST_TIMED_OUT]
        assert await outcome(several) == [Reason.REQUEST_TIMED_OUT] * 2
        node.faults.writes_go_on.set()
        await replica.committed()
        assert read_values(replica) == [b"a", b"b", b"c"]


async def test_topics_go_by_name_or_by_id(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        produce = produce_on(node)
        assert (
            produce.append(produce.find(TopicName(""), TOPIC_ID, 0), batch(b"a")).base_offset == 0
        )
        unknown = Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert (
            refusal(lambda: produce.append(produce.find(TOPIC, NO_TOPIC_ID, 1), batch(b"a")))
            is unknown
        )
        nowhere = TopicId(UUID(int=5))
        assert refusal(
            lambda: produce.append(produce.find(TopicName(""), nowhere, 0), batch(b"a"))
        ) is (Reason.UNKNOWN_TOPIC_ID)
        assert refusal(lambda: produce.append(produce.find(TOPIC, NO_TOPIC_ID, 0), b"")) is (
            Reason.INVALID_RECORD
        )
        assert refusal(lambda: produce.append(produce.find(TOPIC, NO_TOPIC_ID, 0), None)) is (
            Reason.INVALID_RECORD
        )


async def test_internal_topics_are_not_for_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        name = TopicName("__consumer_offsets")
        await node.create(name, TOPIC_ID, [0], TopicConfig())
        produce = produce_on(node)
        assert refusal(lambda: produce.append(produce.find(name, NO_TOPIC_ID, 0), batch(b"a"))) is (
            Reason.INVALID_TOPIC
        )
        assert refusal(
            lambda: produce.append(produce.find(TopicName(""), TOPIC_ID, 0), batch(b"a"))
        ) is (Reason.INVALID_TOPIC)


async def test_zstd_is_refused_where_the_client_may_not_use_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        produce = produce_on(node)
        for codec in Codec:
            sent = build_batch([Record(value=b"x")], codec=codec)
            if codec is Codec.ZSTD:
                assert (
                    refusal(
                        lambda sent=sent: produce.append(
                            produce.find(TOPIC, NO_TOPIC_ID, 0), sent, takes_zstd=False
                        )
                    )
                    is Reason.UNSUPPORTED_COMPRESSION_TYPE
                )
            else:
                produce.append(produce.find(TOPIC, NO_TOPIC_ID, 0), sent, takes_zstd=False)
            produce.append(produce.find(TOPIC, NO_TOPIC_ID, 0), sent)


@pytest.mark.parametrize("magic", [0, 1])
async def test_old_messages_are_stored_as_batches(tmp_path: Path, magic: int) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        messages = b"".join(
            build_message(Record(offset=n, key=b"k", value=b"%d" % n, timestamp_ms=1), magic=magic)
            for n in range(3)
        )
        produce = produce_on(node)
        appended = produce.append(
            produce.find(TOPIC, NO_TOPIC_ID, 0), upgraded(messages), many=True
        )
        assert appended.base_offset == 0
        await replica.committed()
        assert read_values(replica) == [b"0", b"1", b"2"]
        assert refusal(lambda: upgraded(b"\x00" * 30)) in (
            Reason.CORRUPT_MESSAGE,
            Reason.INVALID_RECORD,
        )
