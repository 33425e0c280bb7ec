"""Proves how consumers read: bounded, at once or after a wait, and without leaving files open."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.fetch import (
    MAGIC_NEWEST,
    Fetch,
    FetchAnswer,
    FetchCall,
    FetchQuery,
    Reading,
)
from penstock.broker.readers import Wanted
from penstock.model.errors import Reason
from penstock.model.file_ranges import FileRange
from penstock.model.ids import NO_TOPIC_ID, Offset, TopicId, TopicName
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import (
    PATIENCE_S,
    TOPIC,
    TOPIC_ID,
    batch,
    run,
    values_of,
)
from tests.unit.storage.rot import misplace_batch
from tests.waiting import until


class Consumer:
    """Asks one fetch use case."""

    def __init__(self, node: Node, limits: Limits | None = None) -> None:
        self.fetch = Fetch(
            partitions=node.partitions,
            limits=limits or node.limits,
            executor=node.disk,
        )

    def ask(self, *wanted: Wanted, **options: Any) -> FetchCall:
        return self.fetch.fetch(Reading(self.fetch.reader(wanted)), query(**options))

    async def get(self, *wanted: Wanted, **options: Any) -> FetchAnswer:
        return await self.ask(*wanted, **options)


def query(**options: Any) -> FetchQuery:
    return FetchQuery(**{"wait_ms_max": 0, "bytes_min": 1, "bytes_max": 1_000_000, **options})


async def within(call: FetchCall) -> FetchAnswer:
    async with asyncio.timeout(PATIENCE_S):
        return await call


def wanted(offset: int = 0, partition: int = 0, **options: int) -> Wanted:
    options.setdefault("bytes_max", 100_000)
    return Wanted(TOPIC, NO_TOPIC_ID, partition, offset=offset, **options)


def contents(answer: FetchAnswer) -> list[Any]:
    """Values, reasons or None per partition; releases what it reads."""
    found: list[Any] = []
    for fetched in answer.partitions:
        records = fetched.records
        if fetched.reason is not None:
            found.append(fetched.reason)
        elif records is None:
            found.append(None)
        else:
            found.append(values_of(records.read() if isinstance(records, FileRange) else records))
    answer.release()
    return found


async def until_nothing_is_pinned(*replicas: Replica) -> None:
    """A worker that nobody waits for any more may still be reading."""
    await until(
        lambda: (
            not any(
                segment.file._pins
                for replica in replicas
                for segment in replica._log._state.segments
            )
        )
    )


async def write(replica: Replica, *values: bytes) -> None:
    for value in values:
        replica.append(batch(value))
    await replica.committed()


async def test_what_is_there_is_answered_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a", b"b")
        consumer = Consumer(node)
        answer = await consumer.get(wanted(), wait_ms_max=10_000)
        fetched = answer.partitions[0]
        assert (fetched.high_watermark, fetched.log_start_offset) == (2, 0)
        assert contents(answer) == [[b"a", b"b"]]
        assert contents(await consumer.get(wanted(1))) == [[b"b"]]
        assert contents(await consumer.get(wanted(2))) == [None]


async def test_errors_are_told_per_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a")
        consumer = Consumer(node)
        by_id = Wanted(TopicName(""), TOPIC_ID, 0, offset=0, bytes_max=10)
        unknown_id = Wanted(TopicName(""), TopicId(UUID(int=3)), 0, offset=0, bytes_max=10)
        answer = await consumer.get(
            wanted(0, term=replica.term), wanted(0, partition=5), unknown_id, by_id
        )
        assert contents(answer) == [
            [b"a"],
            Reason.UNKNOWN_TOPIC_OR_PARTITION,
            Reason.UNKNOWN_TOPIC_ID,
            None,
        ]
        assert contents(await consumer.get(wanted(7))) == [Reason.OFFSET_OUT_OF_RANGE]
        assert contents(await consumer.get(wanted(0, term=replica.term + 1))) == [
            Reason.UNKNOWN_LEADER_EPOCH
        ]
        # Of a partition that is named twice the last position counts, as on Kafka.
        assert contents(await consumer.get(wanted(7), wanted(0))) == [[b"a"]]


async def test_an_answer_is_bounded_but_always_brings_at_least_one_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(3), TopicConfig())
        for replica in node.partitions.all():
            await write(replica, b"x" * 1_000, b"y" * 1_000)
        consumer = Consumer(node)
        three = [wanted(0, partition) for partition in range(3)]
        answer = contents(await consumer.get(*three, bytes_max=1))
        assert answer == [[b"x" * 1_000], None, None]
        answer = contents(await consumer.get(wanted(bytes_max=1), bytes_max=10_000))
        assert answer == [[b"x" * 1_000]]
        answer = contents(await consumer.get(*three, bytes_max=3_500))
        assert [len(values or []) for values in answer] == [2, 1, 0]
        capped = Consumer(node, Limits(fetch_bytes_max=1_500))
        answer = contents(await capped.get(*three))
        assert [len(values or []) for values in answer] == [1, 0, 0]


async def test_a_long_poll_ends_when_there_is_enough(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        one, two = node.partitions.all()
        consumer = Consumer(node)
        poll = consumer.ask(wanted(), wanted(0, 1), wait_ms_max=60_000)
        assert not poll.is_settled
        await write(two, b"news")
        assert contents(await poll) == [None, [b"news"]]
        size = len(batch(b"x" * 100))
        poll = consumer.ask(wanted(), wanted(1, 1), wait_ms_max=60_000, bytes_min=2 * size + 1)
        assert not poll.is_settled
        await write(one, b"x" * 100)
        await write(two, b"x" * 100)
        await asyncio.sleep(0.02)
        assert not poll.is_settled
        await write(one, b"y" * 100)
        assert contents(await poll) == [[b"x" * 100, b"y" * 100], [b"x" * 100]]
        assert (len(one._watches), len(two._watches)) == (0, 0)


async def test_partitions_that_move_in_one_turn_share_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        one, two = node.partitions.all()
        poll = Consumer(node).ask(wanted(), wanted(0, 1), wait_ms_max=60_000)
        for replica in (one, two):
            replica.append(batch(b"news"))
        # As the disk's reports do, in one turn: each replica notifies the poll.
        soon: list[Callable[[], None]] = []
        poll._fetch.soon = soon.append  # type: ignore[method-assign]
        await until(lambda: one.high_watermark == two.high_watermark == 1)
        assert len(soon) == 1
        assert not poll.is_settled
        soon[0]()
        assert contents(await poll) == [[b"news"], [b"news"]]


async def test_the_end_of_an_old_segment_is_enough_however_small(tmp_path: Path) -> None:
    """Its next segment has more; a wait would stall every consumer once per segment."""
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(segment_bytes=500))
        await write(replica, *(b"x" * 200 for _ in range(6)))
        consumer = Consumer(node, Limits(fetch_wait_ms_max=3_600_000))
        answer = await asyncio.wait_for(
            consumer.get(wanted(), wait_ms_max=3_600_000, bytes_min=100_000), PATIENCE_S
        )
        assert contents(answer) == [[b"x" * 200]]


async def test_an_own_entry_of_raft_keeps_nobody_waiting_for_what_lies_behind_it(
    tmp_path: Path,
) -> None:
    """An answer ends before it; a wait would stall a consumer that wants much at a time."""
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a", b"b")
        await replica.delete_records(1)
        await write(replica, *(b"x" * 200 for _ in range(10)))
        consumer = Consumer(node)
        answer = consumer.ask(wanted(1), wait_ms_max=60_000, bytes_min=1_000)
        assert answer.is_settled
        assert contents(answer.answer) == [[b"b"]]
        answer = consumer.ask(wanted(2), wait_ms_max=60_000, bytes_min=1_000)
        assert answer.is_settled
        assert contents(answer.answer) == [[b"x" * 200] * 10]
        poll = consumer.ask(wanted(11), wait_ms_max=60_000, bytes_min=1_000)
        assert not poll.is_settled
        await replica.delete_records(2)
        assert not poll.is_settled
        await write(replica, b"y")
        assert contents(await within(poll)) == [[b"x" * 200]]


async def test_more_is_never_waited_for_than_an_answer_may_hold(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"x" * 200)
        consumer = Consumer(node)
        answer = consumer.ask(wanted(), wait_ms_max=60_000, bytes_min=10_000, bytes_max=100)
        assert answer.is_settled
        assert contents(answer.answer) == [[b"x" * 200]]


async def test_a_long_poll_ends_empty_when_its_time_is_up(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        consumer = Consumer(node)
        assert contents(await consumer.get(wanted(), wait_ms_max=20)) == [None]
        await write(replica, b"a")
        answer = await consumer.get(wanted(), wait_ms_max=20, bytes_min=10_000)
        assert contents(answer) == [[b"a"]]
        hurried = Consumer(node, Limits(fetch_wait_ms_max=20))
        assert contents(await hurried.get(wanted(1), wait_ms_max=2**31 - 1)) == [None]
        assert len(replica._watches) == 0


async def test_a_consumer_that_leaves_takes_its_long_poll_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        consumer = Consumer(node)
        poll = consumer.ask(wanted(), wait_ms_max=60_000)
        assert not poll.is_settled
        assert len(replica._watches) == 1
        poll.cancel()
        assert len(replica._watches) == 0
        await write(replica, b"a")


async def test_a_long_poll_hears_of_a_deleted_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        poll = Consumer(node).ask(wanted(), wait_ms_max=60_000)
        assert not poll.is_settled
        await node.partitions.retire_topic(TOPIC_ID)
        assert contents(await poll) == [Reason.UNKNOWN_TOPIC_OR_PARTITION]


async def test_unknown_partitions_do_not_end_the_wait_for_known_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        consumer = Consumer(node)
        unknown = wanted(0, partition=9)
        assert consumer.ask(unknown, wait_ms_max=60_000).is_settled
        poll = consumer.ask(wanted(), unknown, wait_ms_max=60_000)
        assert not poll.is_settled
        await write(replica, b"a")
        assert contents(await poll) == [[b"a"], Reason.UNKNOWN_TOPIC_OR_PARTITION]


async def test_old_segments_are_read_through_a_worker(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(segment_bytes=500))
        await write(replica, *(b"%03d" % number * 50 for number in range(10)))
        consumer = Consumer(node)
        answer = consumer.ask(wanted())
        assert not answer.is_settled
        assert contents(await answer)[0][0] == b"000" * 50
        assert consumer.ask(wanted(9)).is_settled


@pytest.mark.parametrize("magic", [0, 1])
async def test_old_consumers_get_old_messages(tmp_path: Path, magic: int) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a")
        answer = await Consumer(node).get(wanted(), magic=magic)
        records = answer.partitions[0].records
        assert isinstance(records, bytes)
        assert records[16] == magic
        assert records.endswith(b"a")


async def test_a_consumer_that_read_past_the_end_of_its_term_is_sent_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a")
        old_term = replica.term
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"b")
        consumer = Consumer(node)
        answer = await consumer.get(wanted(2, last_fetched_term=old_term))
        assert answer.partitions[0].diverging == (old_term, 1)
        assert answer.partitions[0].records is None
        answer = await consumer.get(wanted(1, last_fetched_term=old_term))
        assert answer.partitions[0].diverging is None
        assert contents(answer) == [[b"b"]]


async def test_zstd_topics_are_refused_to_consumers_that_do_not_know_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(compression_type="zstd"))
        await write(replica, b"a")
        consumer = Consumer(node)
        assert contents(await consumer.get(wanted(), takes_zstd=False)) == [
            Reason.UNSUPPORTED_COMPRESSION_TYPE
        ]
        assert contents(await consumer.get(wanted())) == [[b"a"]]


async def test_no_file_stays_pinned_after_all_kinds_of_fetches(tmp_path: Path) -> None:
    """A range that is not released would keep its file open forever."""
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig(segment_bytes=500))
        one, two = node.partitions.all()
        await write(one, *(b"x" * 200 for _ in range(6)))
        consumer = Consumer(node)
        both = (wanted(), wanted(0, 1))
        contents(await consumer.get(*both, bytes_max=1))
        contents(await consumer.get(*both, wait_ms_max=10, bytes_min=10_000))
        poll = consumer.ask(wanted(5), wanted(0, 1), wait_ms_max=60_000, bytes_min=10_000)
        await write(two, b"y")
        poll.cancel()
        cold = consumer.ask(*both)
        assert not cold.is_settled
        cold.cancel()
        await until_nothing_is_pinned(one, two)


def test_a_lost_index_is_built_away_from_the_loop(tmp_path: Path) -> None:
    """Building one takes seconds for a large segment, and everybody else would wait."""
    config = TopicConfig(segment_bytes=500, index_interval_bytes=100)

    async def fill() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(1), config)
            await write(node.partitions.get(TOPIC, 0), *(b"%d" % n * 50 for n in range(9)))

    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(1), config)
            replica = node.partitions.get(TOPIC, 0)
            assert replica.needs_index(0)
            consumer = Consumer(node)
            dropped = consumer.ask(wanted())
            assert not dropped.is_settled
            dropped.cancel()
            answer = await consumer.get(wanted(1), wait_ms_max=60_000)
            assert contents(answer)[0][0] == b"1" * 50
            assert not replica.needs_index(1)
            await until_nothing_is_pinned(replica)

    run(fill)
    lost = list(tmp_path.rglob("*.index"))
    assert lost
    for path in lost:
        path.unlink()
    run(scenario)


@pytest.mark.parametrize("magic", [1, MAGIC_NEWEST])
@pytest.mark.parametrize("is_active", [False, True])
def test_a_batch_that_is_not_in_its_place_is_not_sent_and_stops_the_replica(
    tmp_path: Path, is_active: bool, magic: int
) -> None:
    """Its checksum is right, so a consumer would take its records for others."""
    config = TopicConfig(segment_bytes=500, index_interval_bytes=100)

    async def fill() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(2), config)
            for replica in node.partitions.all():
                await write(replica, *(b"%d" % n * 100 for n in range(6)))

    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(2), config)
            one, two = node.partitions.all()
            assert one.stopped_because is None
            offset = 4 if is_active else 1
            answer = await Consumer(node).get(wanted(offset), wanted(0, 1), magic=magic)
            reasons = [fetched.reason for fetched in answer.partitions]
            assert reasons == [Reason.STORAGE_ERROR, None]
            answer.release()
            assert "instead of" in str(one.stopped_because)
            assert two.stopped_because is None
            await until_nothing_is_pinned(one, two)

    run(fill)
    segments = sorted(next(tmp_path.rglob("0")).glob("*.log"))
    assert len(segments) == 3
    misplace_batch(segments[-1 if is_active else 0])
    run(scenario)


def test_a_bug_after_an_index_was_loaded_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future that nobody ends would leave the client, and all its later requests, waiting."""
    config = TopicConfig(segment_bytes=500)

    async def fill() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(1), config)
            await write(node.partitions.get(TOPIC, 0), *(b"x" * 200 for _ in range(6)))

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(1), config)
            assert node.partitions.get(TOPIC, 0).needs_index(0)
            consumer = Consumer(node)
            monkeypatch.setattr(consumer.fetch, "read", fail)
            answer = consumer.ask(wanted())
            assert not answer.is_settled
            with pytest.raises(ZeroDivisionError):
                await within(answer)

    run(fill)
    run(scenario)


async def test_a_new_leader_shows_nothing_that_it_is_not_sure_of(tmp_path: Path) -> None:
    """Between its high watermark and the end of its log may lie what consumers have read already:
    no error, no record, no truncation, and no high watermark that goes back for them."""
    async with running(tmp_path) as node:
        replica = await node.replica()
        await write(replica, b"a", b"b", b"c")
        await replica.committed()
        replica.is_settled = False
        replica.high_watermark = Offset(1)
        consumer = Consumer(node)
        for offset in (1, 2, 3):
            answer = await consumer.get(wanted(offset, last_fetched_term=replica.term))
            (fetched,) = answer.partitions
            assert (fetched.reason, fetched.records, fetched.diverging) == (None, None, None)
            assert fetched.high_watermark == offset
        answer = await consumer.get(wanted(0))
        assert answer.partitions[0].high_watermark == 1
        assert contents(answer) == [[b"a"]]
        assert contents(await consumer.get(wanted(4))) == [Reason.OFFSET_OUT_OF_RANGE]


async def test_a_long_poll_ends_when_leadership_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        waiting = Consumer(node).ask(wanted(0), wait_ms_max=60_000)
        assert not waiting.is_settled
        await asyncio.sleep(0)
        replica.is_leader = replica.is_settled = False
        replica._watches.notify()
        assert contents(await waiting) == [Reason.NOT_LEADER_OR_FOLLOWER]


async def test_a_follower_answers_no_consumer(tmp_path: Path) -> None:
    """Not even when there is no room left for its records, nor with a truncation."""
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        one, two = node.partitions.all()
        await write(one, b"a")
        await one.committed()
        two.is_leader = two.is_settled = False
        asked = (wanted(0), wanted(9, partition=1, last_fetched_term=0))
        answer = await Consumer(node).get(*asked, bytes_max=1)
        assert contents(answer) == [[b"a"], Reason.NOT_LEADER_OR_FOLLOWER]
