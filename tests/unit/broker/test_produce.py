"""Proves when a produce is answered: when all of it is safe, refused, or out of time."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.produce import Produce
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
    run,
)


def produce_on(node: Node) -> Produce:
    return Produce(partitions=node.partitions, clock=node.clock)


def append(produce: Produce, partition: int, value: bytes) -> Commit:
    done = produce.append(TOPIC, NO_TOPIC_ID, partition, batch(value)).done
    assert done is not None
    return done


def refusal(call: object) -> Reason:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    return caught.value.reason


def outcome_of(
    produce: Produce, commits: list[Commit], timeout_s: float
) -> "asyncio.Future[object]":
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_done(errors: Sequence[Refused | None]) -> None:
        answered.set_result([error and error.reason for error in errors])

    produce.when_safe(commits, START_MS / 1000 + timeout_s, on_done)
    return answered


def test_it_is_answered_when_every_partition_is_safe(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
            produce = produce_on(node)
            commits = [append(produce, 0, b"a"), append(produce, 1, b"b")]
            assert await outcome_of(produce, commits, 30) == [None, None]
            assert await outcome_of(produce, [append(produce, 0, b"c")], 30) == [None]
            assert read_values(node.partitions.get(TOPIC, 0)) == [b"a", b"c"]

    run(scenario)


def test_each_partition_has_its_own_outcome(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
            produce = produce_on(node)
            first = append(produce, 0, b"a")
            await first
            node.faults.write_error = errno.ENOSPC
            outcome = await outcome_of(produce, [first, append(produce, 1, b"b")], 30)
            assert outcome == [None, Reason.STORAGE_ERROR]

    run(scenario)


def test_a_disk_that_hangs_is_answered_with_a_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica()
            produce = produce_on(node)
            node.faults.writes_go_on.clear()
            answered = outcome_of(produce, [append(produce, 0, b"a")], 1)
            several = outcome_of(produce, [append(produce, 0, b"b"), append(produce, 0, b"c")], 1)
            node.clock.ms += 1_001
            assert await answered == [Reason.REQUEST_TIMED_OUT]
            assert await several == [Reason.REQUEST_TIMED_OUT] * 2
            node.faults.writes_go_on.set()
            await replica.committed()
            assert read_values(replica) == [b"a", b"b", b"c"]

    run(scenario)


def test_topics_go_by_name_or_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.replica()
            produce = produce_on(node)
            assert produce.append(TopicName(""), TOPIC_ID, 0, batch(b"a")).base_offset == 0
            unknown = Reason.UNKNOWN_TOPIC_OR_PARTITION
            assert refusal(lambda: produce.append(TOPIC, NO_TOPIC_ID, 1, batch(b"a"))) is unknown
            nowhere = TopicId(UUID(int=5))
            assert refusal(lambda: produce.append(TopicName(""), nowhere, 0, batch(b"a"))) is (
                Reason.UNKNOWN_TOPIC_ID
            )
            assert refusal(lambda: produce.append(TOPIC, NO_TOPIC_ID, 0, b"")) is (
                Reason.INVALID_RECORD
            )
            assert refusal(lambda: produce.append(TOPIC, NO_TOPIC_ID, 0, None)) is (
                Reason.INVALID_RECORD
            )

    run(scenario)


def test_internal_topics_are_not_for_clients(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            name = TopicName("__consumer_offsets")
            await node.create(name, TOPIC_ID, [0], TopicConfig())
            produce = produce_on(node)
            assert refusal(lambda: produce.append(name, NO_TOPIC_ID, 0, batch(b"a"))) is (
                Reason.INVALID_TOPIC
            )
            assert refusal(lambda: produce.append(TopicName(""), TOPIC_ID, 0, batch(b"a"))) is (
                Reason.INVALID_TOPIC
            )

    run(scenario)


def test_zstd_is_refused_where_the_client_may_not_use_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.replica()
            produce = produce_on(node)
            for codec in Codec:
                sent = build_batch([Record(value=b"x")], codec=codec)
                if codec is Codec.ZSTD:
                    assert (
                        refusal(
                            lambda sent=sent: produce.append(
                                TOPIC, NO_TOPIC_ID, 0, sent, takes_zstd=False
                            )
                        )
                        is Reason.UNSUPPORTED_COMPRESSION_TYPE
                    )
                else:
                    produce.append(TOPIC, NO_TOPIC_ID, 0, sent, takes_zstd=False)
                produce.append(TOPIC, NO_TOPIC_ID, 0, sent)

    run(scenario)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_stored_as_batches(tmp_path: Path, magic: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica()
            messages = b"".join(
                build_message(
                    Record(offset=n, key=b"k", value=b"%d" % n, timestamp_ms=1), magic=magic
                )
                for n in range(3)
            )
            appended = produce_on(node).append_messages(TOPIC, 0, messages)
            assert appended.base_offset == 0
            await replica.committed()
            assert read_values(replica) == [b"0", b"1", b"2"]
            assert refusal(lambda: produce_on(node).append_messages(TOPIC, 0, b"\x00" * 30)) in (
                Reason.CORRUPT_MESSAGE,
                Reason.INVALID_RECORD,
            )

    run(scenario)
