"""Proves that hostile clients of gRPC can't take the node's memory, or the door from others."""

import asyncio
import contextlib
import gzip
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from penstock.frontdoor.grpc import limits
from penstock.frontdoor.grpc.relay import Relay
from tests.e2e.grpc_client import Client, Generated
from tests.e2e.processes import Broker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
# What the doors' process may take more than before; each attack below tries for far more.
MORE_BYTES_MAX = 100 * MIB


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return Generated(tmp_path_factory.mktemp("generated"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("hostile") / "data").start()
    yield broker
    broker.kill()


@pytest.fixture
def client(broker: Broker, generated: Generated) -> Iterator[Client]:
    with Client(generated, broker.grpc) as client:
        yield client


def door_bytes(broker: Broker) -> int:
    (door,) = psutil.Process(broker.pid).children()
    return int(door.memory_info().rss)


def most_door_bytes(broker: Broker) -> int:
    """The most that the process ever had."""
    (door,) = psutil.Process(broker.pid).children()
    if sys.platform != "linux":
        return int(door.memory_info().rss)
    status = Path(f"/proc/{door.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def publish(client: Client, topic: str, value: bytes = b"v", count: int = 1) -> None:
    pb = client.messages
    records = [pb.NewRecord(value=value)] * count
    client.streams.Publish(pb.PublishRequest(topic=topic, records=records), timeout=30)


def refused(call: Any, request: Any, **given: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, **given)
    code = caught.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


def test_a_message_that_is_too_large_is_refused(broker: Broker, client: Client) -> None:
    publish(client, "large")
    before = door_bytes(broker)
    pb = client.messages
    huge = pb.PublishRequest(topic="large", records=[pb.NewRecord(value=b"x" * (64 * MIB))])
    assert refused(client.streams.Publish, huge) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert door_bytes(broker) < before + MORE_BYTES_MAX
    publish(client, "large")


def test_a_small_message_that_would_become_a_large_one_is_not_unpacked(
    broker: Broker, client: Client
) -> None:
    """The door takes no compressed messages at all, so it never holds what one would become."""
    publish(client, "bomb")
    before = door_bytes(broker)
    pb = client.messages
    value = bytes(3 * MORE_BYTES_MAX)
    bomb = pb.PublishRequest(topic="bomb", records=[pb.NewRecord(value=value)])
    assert len(gzip.compress(bomb.SerializeToString(), 1)) < limits.MESSAGE_BYTES_MAX
    code = refused(client.streams.Publish, bomb, compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert most_door_bytes(broker) < before + MORE_BYTES_MAX
    publish(client, "bomb")


def test_many_calls_that_say_nothing_hold_up_nobody(
    broker: Broker, client: Client, generated: Generated
) -> None:
    publish(client, "idle")
    before = door_bytes(broker)
    with contextlib.ExitStack() as ends:
        silent = [ends.enter_context(Client(generated, broker.grpc)) for _ in range(2)]
        for each in silent:
            for call in (each.streams.Subscribe, each.streams.PublishStream):
                for _ in range(limits.CALLS_PER_CONNECTION_MAX // 4):
                    call(_Silence())
        # Connections that never begin to speak, or speak something else.
        host, _, port = broker.grpc.rpartition(":")
        for number in range(300):
            sock = ends.enter_context(socket.create_connection((host, int(port))))
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"PRI * HTTP/2.0\r\n")
        for _ in range(20):
            publish(client, "idle")
        assert door_bytes(broker) < before + MORE_BYTES_MAX
    publish(client, "idle")


class _Silence:
    """The requests of a call that has no more and does not end."""

    def __iter__(self) -> "_Silence":
        return self

    def __next__(self) -> Any:
        threading.Event().wait()


def test_a_subscriber_that_does_not_read_is_not_buffered_for(
    broker: Broker, client: Client, generated: Generated
) -> None:
    pb = client.messages
    publish(client, "flood")
    before = door_bytes(broker)
    channel = grpc.insecure_channel(broker.grpc, [("grpc.http2.bdp_probe", 0)])
    # Its library reads a little ahead; a message is only taken when somebody asks for it.
    start = pb.StartSubscription(topic="flood", start=pb.Start(offset=0), credit=limits.CREDIT_MAX)
    stub = channel.stream_stream("/penstock.v1.Streams/Subscribe")
    requests = iter([pb.SubscribeRequest(start=start).SerializeToString()])
    replies = stub(_then_silence(requests))
    next(replies)
    for _ in range(60):
        publish(client, "flood", b"x" * 10_000, 200)
    assert door_bytes(broker) < before + MORE_BYTES_MAX
    replies.cancel()
    channel.close()
    publish(client, "flood")


def _then_silence(requests: Iterator[Any]) -> Iterator[Any]:
    yield from requests
    yield from _Silence()


async def test_who_sends_most_has_to_go_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_CHECK_S", 0.01)
    monkeypatch.setattr(limits, "GREEDY_BYTES_MIN", 100_000)
    received = asyncio.Event()
    taken = {"bytes": 0}

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            taken["bytes"] += len(data)
            received.set()
        writer.close()

    inner = tmp_path / "inner"
    server = await asyncio.start_unix_server(swallow, str(inner))
    listening = socket.create_server(("127.0.0.1", 0))
    memory = {"bytes": 0}
    looks = asyncio.Semaphore(0)

    def memory_bytes() -> int:
        looks.release()
        return memory["bytes"]

    relay = Relay([listening], str(inner), memory_bytes)
    relay.open()
    address = listening.getsockname()
    modest = await asyncio.open_connection(*address)
    greedy = await asyncio.open_connection(*address)
    modest[1].write(b"x" * 10)
    greedy[1].write(b"x" * 100_000)

    async def taken_by_the_library(size: int) -> None:
        while taken["bytes"] < size:
            received.clear()
            await received.wait()

    async def looked_twice() -> None:
        while not looks.locked():
            await looks.acquire()
        for _ in range(2):
            await looks.acquire()

    await taken_by_the_library(100_010)
    await looked_twice()
    memory["bytes"] = limits.MEMORY_BYTES_MAX + 1
    # What was sent before is not to blame, and neither are those who send little.
    modest[1].write(b"x" * 10)
    greedy[1].write(b"x" * 50_000)
    await taken_by_the_library(150_020)
    await looked_twice()
    # Who sends little at a time sends too much in the end.
    greedy[1].write(b"x" * 50_000)
    with contextlib.suppress(ConnectionError):
        assert await greedy[0].read() == b""
    memory["bytes"] = 0
    modest[1].write(b"x")
    received.clear()
    await asyncio.wait_for(received.wait(), 10)
    relay.close()
    for _, writer in (modest, greedy):
        writer.close()
    server.close()
    listening.close()


def test_the_door_opens_again_when_its_process_dies(broker: Broker, client: Client) -> None:
    publish(client, "again")
    (door,) = psutil.Process(broker.pid).children()
    door.kill()
    wait_until("it is gone", lambda: not door.is_running() or door.status() == "zombie")

    def is_open() -> bool:
        try:
            publish(client, "again")
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True

    wait_until("it is open again", is_open)
