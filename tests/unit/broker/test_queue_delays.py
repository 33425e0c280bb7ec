"""Queues with delays, order per key and limits, as consumers see them on one node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import polling, queue_offsets
from penstock.broker.queues import AckType, QueueOffset
from penstock.model.ids import COPIERS_FROM, MemberId
from penstock.queues import looking
from penstock.queues.commands import AcquiredRange
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.unit.broker.queue_rig import EARLIEST, G, N, QueueNode, leased, turns
from tests.unit.clocks import START_MS, ManualClock
from tests.unit.lone_node import run
from tests.waiting import until

DELAY = {**EARLIEST, "penstock.queue.delay.enable": "true"}
ORDER = {**EARLIEST, "penstock.queue.key.order.enable": "true"}
EXPIRY = {**EARLIEST, "penstock.queue.expiry.enable": "true"}


def record(
    value: bytes, *, key: bytes | None = None, after_ms: int | None = None, at_ms: int | None = None
) -> Record:
    headers = []
    if after_ms is not None:
        headers.append(("penstock.deliver.after", str(after_ms).encode()))
    if at_ms is not None:
        headers.append(("penstock.deliver.at", str(at_ms).encode()))
    return Record(timestamp_ms=START_MS, key=key, value=value, headers=tuple(headers))


class SetClock(ManualClock):
    """Time passes for the loop's own timers as in the world; the wall clock is a test's."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


async def begin(path: Path, configs: dict[str, str], **options: Any) -> tuple[QueueNode, SetClock]:
    clock = SetClock()
    node = await QueueNode.begin(path, clock=clock, **options)
    await node.set_group(**configs)
    return node, clock


def make_due(node: QueueNode, clock: SetClock, ms: int) -> None:
    clock.ms += ms
    node.queues.lead(G, node.topic_id, 0).make_due()


def test_a_record_for_later_comes_when_it_is_due_to_a_poll_that_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, clock = await begin(tmp_path, DELAY)
        await node.send_records(record(b"later", after_ms=5_000), record(b"now"))
        assert leased(await node.poll()) == [b"now"]
        waiting = asyncio.ensure_future(node.poll(N))
        await turns()
        assert not waiting.done()
        make_due(node, clock, 5_000)
        assert leased(await waiting) == [b"later"]
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("is_killed", [True, False])
def test_delays_survive_a_restart_and_nothing_is_decoded_again(
    tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node, clock = await begin(tmp_path, DELAY)
        await node.send_records(*(record(b"%d" % i, after_ms=5_000) for i in range(50)))
        assert (await node.poll_now()).ranges == ()
        await node.open(0)
        assert (await node.poll_now()).ranges == ()
        if is_killed:
            node.kill()
        else:
            await node.stop()
        again = await QueueNode.begin(tmp_path, clock=clock)
        monkeypatch.setattr(looking, "look_into", None)
        await again.open(0)
        assert (await again.poll_now()).ranges == ()
        make_due(again, clock, 5_000)
        assert list((await again.poll()).ranges) == [AcquiredRange(0, 49, 1)]
        await again.stop()

    run(scenario)


def test_a_poll_looks_past_many_records_for_later_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "LOOKED_RECORDS_MAX", 20)
    monkeypatch.setattr(polling, "STEPS_MAX", 3)

    async def scenario() -> None:
        node, _ = await begin(tmp_path, DELAY)
        for _ in range(50):
            await node.send_records(*(record(b"x", after_ms=60_000) for _ in range(10)))
        await node.send_records(record(b"now"))
        await node.open(0)
        queue = node.queues.lead(G, node.topic_id, 0)
        assert (await node.poll_now()).ranges == (), "one poll does not look at all of them"
        looked = queue.unlooked_from()
        assert looked is not None
        assert 0 < looked <= 3 * 20
        answer = await node.poll()
        assert leased(answer) == [b"now"], "one that waits looks on"
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("configs", [DELAY, ORDER, EXPIRY])
def test_a_poll_looks_past_copies_for_other_queues_at_a_large_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configs: dict[str, str]
) -> None:
    monkeypatch.setattr(looking, "LOOKED_RECORDS_MAX", 20)

    async def scenario() -> None:
        node, _ = await begin(tmp_path, configs)
        await node.send_records(record(b"first"))
        copies = build_batch(
            [record(b"copy")], producer_id=COPIERS_FROM, producer_epoch=0, base_sequence=0
        )
        done = node.replica().append(copies).done
        if done is not None:
            await done
        await node.send_records(*(record(b"large") for _ in range(30)))
        await node.open(0)
        # One reads all three, the other one begins with the copies.
        assert leased(await node.poll_now(records_max=1)) == [b"first"]
        answer = await node.poll_now(N)
        assert leased(answer) == [b"large"] * 30
        await node.stop()

    run(scenario)


def test_what_is_large_is_looked_into_by_a_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, _ = await begin(tmp_path, {**DELAY, **ORDER})
        big = b"v" * 10_000
        await node.send_records(
            *(record(big, key=b"%d" % (i % 3), after_ms=i % 2 * 9_000) for i in range(12))
        )
        # 0 and 2, and 4 after it; 1 is for later and holds up 4 as well, which has its key.
        assert list((await node.poll()).ranges) == [AcquiredRange(0, 0, 1), AcquiredRange(2, 2, 1)]
        await node.stop()

    run(scenario)


def test_a_record_that_is_given_back_waits_for_its_next_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        configs = {**EARLIEST, "penstock.queue.retry.backoff.ms": "1000"}
        configs["penstock.queue.retry.backoff.jitter.percent"] = "0"
        node, clock = await begin(tmp_path, configs)
        await node.send(b"a", b"b")
        await node.poll()
        assert await node.acknowledge(0, 0, AckType.RELEASE) is None
        assert (await node.poll_now(N)).ranges == ()
        make_due(node, clock, 1_000)
        assert list((await node.poll(N)).ranges) == [AcquiredRange(0, 0, 2)]
        await node.stop()

    run(scenario)


def test_the_order_of_a_key_is_kept_also_by_who_opens_the_queue_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, clock = await begin(tmp_path, ORDER)
        for number in range(3):
            await node.send_records(
                record(b"a%d" % number, key=b"a"), record(b"b%d" % number, key=b"b")
            )
        assert leased(await node.poll()) == [b"a0", b"b0"]
        assert (await node.poll_now(N)).ranges == ()
        assert await node.acknowledge(0, 0) is None
        assert leased(await node.poll(N)) == [b"a1"]
        node.kill()
        again = await QueueNode.begin(tmp_path, clock=clock)
        await again.open(0)
        assert (await again.poll_now(N)).ranges == (), "a1 and b0 are leased"
        assert await again.acknowledge(2, 2, member_id=N) is None
        assert leased(await again.poll(N)) == [b"a2"]
        await again.stop()

    run(scenario)


def test_a_change_of_the_order_acts_on_a_queue_that_is_in_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, _ = await begin(tmp_path, EARLIEST)
        await node.send_records(*(record(b"%d" % i, key=b"k") for i in range(3)))
        await node.poll(records_max=1, is_exact=True)
        await node.set_group(**ORDER)
        await node.poll_now(N)
        await node.open(0)
        assert (await node.poll_now(N)).ranges == (), "the first is leased"
        await node.set_group(**EARLIEST)
        await node.poll_now(N)
        await node.open(0)
        assert leased(await node.poll(N)) == [b"1", b"2"]
        await node.stop()

    run(scenario)


def test_a_consumer_at_its_limit_gets_more_when_it_has_acked(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {**EARLIEST, "penstock.queue.consumer.max.record.locks": "3"}
        node, _ = await begin(tmp_path, limits, partitions=2)
        await node.open(0, 1)
        for partition in (0, 1):
            await node.send(*(b"%d" % i for i in range(5)), partition=partition)
        answers = await node.ask(partitions=(0, 1), is_exact=True)
        assert sum(len(leased(answer)) for answer in answers) == 3
        waiting = asyncio.ensure_future(node.poll(partitions=(1,), is_exact=True))
        await turns()
        assert not waiting.done()
        assert (await node.poll(N, partitions=(1,), is_exact=True)).ranges, "others may"
        assert await node.acknowledge(0, 1) is None
        assert len(leased(await waiting)) == 2
        await node.stop()

    run(scenario)


def test_all_consumers_of_a_group_share_its_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {**EARLIEST, "penstock.queue.group.max.record.locks": "4"}
        node, _ = await begin(tmp_path, limits)
        await node.send(*(b"%d" % i for i in range(9)))
        counts = [
            len(leased(await node.poll_now(MemberId(name), records_max=3, is_exact=True)))
            for name in ("a", "b", "c")
        ]
        await node.open(0)
        counts += [
            len(leased(await node.poll_now(MemberId(name), records_max=3, is_exact=True)))
            for name in ("a", "b", "c")
        ]
        assert sum(counts) == 4
        await node.stop()

    run(scenario)


def test_wrong_times_are_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        node, _ = await begin(tmp_path, DELAY)
        bad = Record(
            timestamp_ms=START_MS, value=b"bad", headers=(("penstock.deliver.at", b"soon"),)
        )
        await node.send_records(bad, record(b"far", after_ms=10**15))
        assert leased(await node.poll()) == [b"bad"]
        queue = node.queues.lead(G, node.topic_id, 0)
        assert (queue.wrong_times.malformed_count, queue.wrong_times.clamped_count) == (1, 1)
        await until(lambda: "too far away" in caplog.text)
        await node.stop()

    run(scenario)


def test_a_queue_in_which_too_many_wait_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_offsets, "WAITING_MAX", 4)

    async def scenario() -> None:
        node, _ = await begin(tmp_path, DELAY)
        await node.open(0)
        await node.send_records(*(record(b"x", after_ms=9_000) for _ in range(3)))
        assert (await node.poll_now()).ranges == ()
        wanted = {node.topic_id: [0]}
        (found,) = (await node.queues.describe_offsets(G, wanted)).values()
        assert isinstance(found, QueueOffset)
        assert found.note == ""
        await node.send_records(record(b"x", after_ms=9_000))
        assert (await node.poll_now()).ranges == ()
        (found,) = (await node.queues.describe_offsets(G, wanted)).values()
        assert isinstance(found, QueueOffset)
        assert found.note.startswith("4 records wait for their time")
        await node.stop()

    run(scenario)
