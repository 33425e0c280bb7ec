"""Queues from Python programs: loops, handlers in threads, and asyncio."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from penstock import AsyncQueue, Queue, Reject
from penstock.client import Message, Producer
from penstock.client.queues import Queues
from penstock.testing import Broker
from tests.e2e.commands import fresh
from tests.e2e.processes import clean_environment

IDLE_S = 3.0


@pytest.fixture
def bootstrap(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.create_topic(fresh("jobs"), partitions=2)


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", headers=[("h", b"1")])


def left_in(bootstrap: str, group: str) -> int | None:
    return Queues(bootstrap, timeout_s=30).describe(group).lag


def test_a_loop_acks_what_it_has_done(bootstrap: str, topic: str) -> None:
    group = fresh("group")
    send(bootstrap, topic, [b"a", b"b", b"c"])
    with Queue(topic, group=group, bootstrap=bootstrap) as queue:
        seen = []
        for message in queue:
            assert (message.key, message.headers, message.topic) == (b"k", (("h", b"1"),), topic)
            seen.append(message.value)
            if len(seen) == 3:
                # What a loop leaves in the middle is not done.
                break
        message.ack()
    assert sorted(map(bytes, filter(None, seen))) == [b"a", b"b", b"c"]
    assert left_in(bootstrap, group) == 0


def test_what_a_handler_fails_at_is_tried_again_and_what_it_rejects_is_not(
    bootstrap: str, topic: str
) -> None:
    group = fresh("group")
    send(bootstrap, topic, [b"good", b"bad", b"hopeless"])
    seen: list[tuple[bytes | None, int]] = []
    lock = threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            seen.append((message.value, message.attempt))
        if message.value == b"hopeless":
            raise Reject("nobody can")
        if message.value == b"bad" and message.attempt < 3:
            raise ValueError("not yet")

    with Queue([topic], group=group, bootstrap=bootstrap) as queue:
        queue.work(handle, concurrency=4, idle_s=IDLE_S)
    assert sorted(seen, key=str) == sorted(
        [(b"good", 1), (b"bad", 1), (b"bad", 2), (b"bad", 3), (b"hopeless", 1)], key=str
    )
    assert left_in(bootstrap, group) == 0


async def test_asyncio(bootstrap: str, topic: str) -> None:
    group = fresh("group")
    send(bootstrap, topic, [b"%d" % number for number in range(20)])
    seen: list[tuple[bytes | None, int]] = []

    async def handle(message: Message) -> None:
        seen.append((message.value, message.attempt))
        if message.value == b"7" and message.attempt == 1:
            raise ValueError("once")

    async with AsyncQueue(topic, group=group, bootstrap=bootstrap) as queue:
        async for message in queue:
            seen.append((message.value, message.attempt))
            break
        await queue.work(handle, concurrency=5, idle_s=IDLE_S)
        message.ack().result(30)
    values = [value for value, _ in seen]
    assert sorted({value for value in values if value}, key=int) == [b"%d" % n for n in range(20)]
    assert left_in(bootstrap, group) == 0


PROGRAM = """
import sys, time
from penstock import Queue

def handle(message):
    print("began", message.value.decode(), flush=True)
    time.sleep(1)
    print("ended", message.value.decode(), flush=True)

with Queue(sys.argv[1], group=sys.argv[2], bootstrap=sys.argv[3]) as queue:
    queue.work(handle, concurrency=1)
print("over", flush=True)
"""


def test_sigterm_lets_a_handler_finish_and_gives_back_the_rest(bootstrap: str, topic: str) -> None:
    group = fresh("group")
    send(bootstrap, topic, [b"1", b"2", b"3"])
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, topic, group, bootstrap],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment({}),
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("began")
        os.kill(program.pid, signal.SIGTERM)
        rest, _ = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate(timeout=10)
    assert [line.split()[0] for line in rest.splitlines()] == ["ended", "over"]
    assert program.returncode == 0
    assert left_in(bootstrap, group) == 2


def test_a_topic_that_does_not_exist_is_refused(bootstrap: str) -> None:
    missing = fresh("missing")
    with (
        pytest.raises(Exception, match=f"{missing} does not exist"),
        Queue(missing, group=fresh("group"), bootstrap=bootstrap),
    ):
        pass
