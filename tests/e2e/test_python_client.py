"""Streams from Python programs: values, starts, commits, signals, and the same for asyncio."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from penstock import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    Producer,
)
from penstock.client.configs import Resource
from penstock.client.errors import BrokerUnreachable, DeliveryFailed, TopicNotFound
from penstock.testing import Broker
from tests.e2e.commands import fresh
from tests.e2e.processes import clean_environment


@pytest.fixture(autouse=True)
def bootstrap(penstock_session_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every client here finds the broker by the variable."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", penstock_session_broker.bootstrap)
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.create_topic(fresh("readings"), settings={"retention.ms": "-1"})


def send(topic: str, count: int) -> None:
    with Producer() as producer:
        for number in range(count):
            producer.send(topic, str(number), timestamp_ms=1_000 + number)


def values(records: Any) -> list[int]:
    return [int(record.text()) for record in records]


def committed(group: str) -> list[int]:
    with Admin() as admin:
        return [offset for offset, _ in admin.groups.committed(group).values()]


def test_a_record_says_where_it_is_and_comes_back_as_it_was(topic: str) -> None:
    with Producer() as producer:
        first = producer.send(topic, {"celsius": 21.5}, key="kitchen", headers={"unit": "C"})
        place = first.result()
        assert (place.topic, place.partition, place.offset) == (topic, 0, 0)
        assert first.done()
        assert producer.send(topic, "warm").result().offset == 1
    with Consumer(topic) as consumer:
        one, two = islice(consumer, 2)
    assert (one.json(), one.key, one.headers) == ({"celsius": 21.5}, b"kitchen", (("unit", b"C"),))
    assert (two.text(), two.key) == ("warm", None)
    with pytest.raises(ClientError, match="The value is not JSON"):
        two.json()


def test_a_record_that_is_refused_says_so_itself_and_once_in_a_flush(
    penstock_session_broker: Broker,
) -> None:
    small = penstock_session_broker.create_topic(
        fresh("small"), settings={"max.message.bytes": "500"}
    )
    with Producer() as producer:
        too_large = producer.send(small, b"x" * 5_000)
        with pytest.raises(DeliveryFailed, match=f"A record for topic {small} was not delivered"):
            too_large.result()
        with pytest.raises(DeliveryFailed, match="1 of 1 records were not delivered"):
            producer.flush()
        assert producer.send(small, b"x").result().offset == 0


def test_nobody_there_is_an_error_within_the_time_of_a_record() -> None:
    with Producer("127.0.0.1:1", delivery_timeout_s=0.3) as producer:
        with pytest.raises(DeliveryFailed, match=r"no acknowledgement within 0\.3 s"):
            producer.send("t", "x").result()
        with pytest.raises(DeliveryFailed):
            producer.flush()
    with pytest.raises(BrokerUnreachable, match="No broker answers"):
        Consumer("t", group="g", bootstrap="127.0.0.1:1").poll()
    with pytest.raises(ClientError, match="is not a topic; give an address as bootstrap="):
        Consumer("127.0.0.1:1")


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        (4, 4),
        ("-3", 7),
        ({0: 6}, 6),
        (datetime.fromtimestamp(1.005, UTC), 5),
        ("@1008", 8),
    ],
    ids=["earliest", "offset", "last", "mapping", "time", "milliseconds"],
)
def test_a_reader_starts_where_it_is_sent(topic: str, start: Any, first: int) -> None:
    send(topic, 10)
    with Consumer(topic, start=start) as consumer:
        assert values(islice(consumer, 10 - first)) == list(range(first, 10))
    if isinstance(start, dict):
        return
    # A group starts there too, and goes on after that where it was.
    group = fresh("group")
    for begin in (first, 9):
        with Consumer(topic, group=group, start=start) as consumer:
            assert values(islice(consumer, 10 - begin)) == list(range(begin, 10))


def test_a_start_that_is_none_is_refused(topic: str) -> None:
    with pytest.raises(ClientError, match="'yesterday' is not a position"):
        Consumer(topic, start="yesterday")
    with pytest.raises(ClientError, match=f"The topic {topic} has no partition 7"):
        Consumer(topic, start={7: 0}).poll()
    with pytest.raises(TopicNotFound):
        Consumer(fresh("missing")).poll()


def test_a_batch_is_committed_when_the_next_one_is_asked_for(topic: str) -> None:
    send(topic, 10)
    group = fresh("group")
    with Consumer(topic, group=group, options={"enable.auto.commit": False}) as consumer:
        seen: list[int] = []
        batches = consumer.batches()
        while len(seen) < 10:
            seen += values(next(batches))
        consumer.stop()
        assert next(batches, None) is None
    assert seen == list(range(10))
    assert committed(group) == [10]


PROGRAM = """
import sys, time
from penstock import Consumer

with Consumer(sys.argv[1], group=sys.argv[2]) as consumer:
    for record in consumer:
        print("began", record.text(), flush=True)
        time.sleep(0.5)
        print("ended", record.text(), flush=True)
print("over", flush=True)
"""


def test_sigterm_ends_a_loop_after_its_record_and_commits_it(topic: str, bootstrap: str) -> None:
    send(topic, 3)
    group = fresh("group")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, topic, group],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment({"PENSTOCK_BOOTSTRAP": bootstrap}),
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "began 0\n"
        os.kill(program.pid, signal.SIGTERM)
        rest, _ = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate(timeout=10)
    assert (rest.splitlines(), program.returncode) == (["ended 0", "over"], 0)
    assert committed(group) == [1]


# asyncio


async def test_many_tasks_send_more_than_there_is_room_for(topic: str) -> None:
    """Nothing is dropped, and each task's records stay in order."""
    options = {"queue.buffering.max.messages": 50}
    async with AsyncProducer(options=options) as producer:

        async def work(worker: int) -> list[int]:
            sendings = [await producer.send(topic, [worker, each]) for each in range(200)]
            return [(await sending).offset for sending in sendings]

        offsets = await asyncio.gather(*map(work, range(10)))
    assert all(each == sorted(each) for each in offsets)
    assert sorted(one for each in offsets for one in each) == list(range(2_000))
    assert (producer.sent, producer.delivered, producer.failed) == (2_000, 2_000, 0)
    with Consumer(topic) as consumer:
        seen = [record.json() for record in islice(consumer, 2_000)]
    for worker in range(10):
        assert [each for by, each in seen if by == worker] == list(range(200))


async def test_an_async_producer_says_what_failed(penstock_session_broker: Broker) -> None:
    small = await asyncio.to_thread(
        penstock_session_broker.create_topic, fresh("small"), settings={"max.message.bytes": "500"}
    )
    async with AsyncProducer() as producer:
        started = time.monotonic()
        assert (await producer.send_and_wait(small, "x")).offset == 0
        assert time.monotonic() - started < 5
        with pytest.raises(DeliveryFailed, match=f"topic {small}"):
            await producer.send_and_wait(small, b"x" * 5_000)
        with pytest.raises(DeliveryFailed, match="1 of 2 records"):
            await producer.flush()
        with pytest.raises(ClientError, match="can't be stored as JSON"):
            await producer.send(small, object())
    with pytest.raises(ClientError, match="`async with`"):
        await producer.send(small, "x")


async def test_an_async_consumer_loses_nothing_when_its_task_is_cancelled(topic: str) -> None:
    """What arrives for a task that is gone is for the next one, and the group comes past it."""
    group = fresh("group")
    seen: list[int] = []
    async with (
        AsyncProducer() as producer,
        # Not from the latest: a consumer asks where that is after it was assigned its partitions.
        AsyncConsumer(topic, group=group) as consumer,
    ):
        while not consumer.assigned:
            await consumer.poll()

        async def read() -> None:
            async for record in consumer:
                seen.append(int(record.text() or ""))
                if len(seen) == 20:
                    break

        for number in range(20):
            task = asyncio.create_task(read())
            await asyncio.sleep(0)
            task.cancel()
            await producer.send_and_wait(topic, number)
        await read()
        await consumer.commit()
    assert seen == list(range(20))
    # The record at which the loop broke off is not done.
    assert await asyncio.to_thread(committed, group) == [19]


@pytest.mark.parametrize("start", ["earliest", "@1004"])
async def test_an_async_consumer_reads_in_order(topic: str, start: str) -> None:
    await asyncio.to_thread(send, topic, 500)
    group = fresh("group")
    first = 4 if start.startswith("@") else 0
    seen: list[int] = []
    async with AsyncConsumer(topic, group=group, start=start) as consumer:
        async for record in consumer:
            seen.append(int(record.text() or ""))
            if len(seen) == 300:
                break
    assert seen == list(range(first, first + 300))
    async with AsyncConsumer(topic, group=group) as consumer:
        async for records in consumer.batches():
            seen += values(records)
            if seen[-1] == 499:
                consumer.stop()
    assert seen[300:] == list(range(first + 299, 500))
    assert await asyncio.to_thread(committed, group) == [500]


async def test_an_async_admin_answers_like_the_other(bootstrap: str) -> None:
    name = fresh("topic")
    async with AsyncAdmin() as admin:
        assert await admin.topics.create(name, partitions=2)
        assert not await admin.topics.create(name, if_missing=True)
        assert name in [each.name for each in await admin.topics.all()]
        await admin.settings.alter(Resource(topic=name), set_to={"retention.ms": "1000"})
        one = await admin.settings.one(Resource(topic=name), "retention.ms")
        assert (one.value, one.source) == ("1000", "dynamic topic")
        assert await admin.topics.partitions(name) == [0, 1]
        assert len((await admin.cluster()).nodes) == 1
        assert isinstance(await admin.groups.all(), list)
        await admin.topics.delete(name)
        with pytest.raises(TopicNotFound):
            await admin.topics.describe(name)
