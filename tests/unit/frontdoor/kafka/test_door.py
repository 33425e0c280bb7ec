"""The door's brakes: bounded calls, replies and memory; reaping; a full house; draining."""

import asyncio
import gc
import logging
import socket
import tracemalloc
from typing import Any

import pytest

from penstock.broker.later import Later
from penstock.frontdoor.kafka import door as door_module
from penstock.frontdoor.kafka.api import Body, Call
from penstock.model.errors import StartRefused
from penstock.net import frame_connection
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from .kit import (
    PATIENCE_SECONDS,
    Client,
    House,
    beat,
    beat_frame,
    heartbeat_api,
    open_house,
    quiet,
)

MIB = 1024 * 1024


class Waiting:
    """A handler whose answers the test gives."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Later[HeartbeatResponse]]] = []

    def __call__(self, call: Call, request: HeartbeatRequest) -> Any:
        later: Later[HeartbeatResponse] = Later()
        self.calls.append((request.generation_id, later))
        return later

    def answer_all(self) -> None:
        calls, self.calls = self.calls, []
        for number, later in calls:
            later.settle(HeartbeatResponse(throttle_time_ms=number))


def half_frames(house: House) -> int:
    """How many connections have begun a frame that has not come to its end."""
    links = [connection._link for connection in house.door._connections.values()]
    return sum(link._frame_since is not None for link in links)


async def read_numbers(client: Client, count: int) -> list[int]:
    return [(await client.read_beat())[0] for _ in range(count)]


# Calls in flight


async def test_reading_pauses_at_the_limit_of_calls_and_resumes() -> None:
    handler = Waiting()
    async with open_house(
        heartbeat_api(handler, is_pipelined=True), requests_in_flight_per_connection_max=10
    ) as house:
        client = await house.connect()
        client.send(b"".join(map(beat_frame, range(25))))
        await house.settle(lambda: len(handler.calls) == 10)
        await quiet()
        assert len(handler.calls) == 10
        handler.answer_all()
        await house.settle(lambda: len(handler.calls) == 10)
        handler.answer_all()
        await house.settle(lambda: len(handler.calls) == 5)
        handler.answer_all()
        assert await read_numbers(client, 25) == list(range(25))


# Pressure of unflushed bytes


async def test_producers_are_not_read_under_pressure_and_others_are() -> None:
    async with open_house(heartbeat_api(beat, adds_pressure=True)) as house:
        producer, other = await house.connect(), await house.connect()
        house.pressure.is_over = True
        producer.send(beat_frame(1) + beat_frame(2))
        assert await read_numbers(producer, 1) == [1]
        await quiet()
        assert not producer.reader._buffer  # type: ignore[attr-defined]
        house.pressure.relieve()
        assert await read_numbers(producer, 1) == [2]
        other.send(beat_frame(3))
        assert await read_numbers(other, 1) == [3]


async def test_pressure_after_a_closed_connection_is_harmless() -> None:
    async with open_house(heartbeat_api(beat, adds_pressure=True)) as house:
        producer = await house.connect()
        house.pressure.is_over = True
        producer.send(beat_frame(1))
        assert await read_numbers(producer, 1) == [1]
        await house.door.drain(0.01)
        house.pressure.relieve()


# Slow readers


async def test_a_slow_reader_is_not_served_beyond_its_limit_of_replies() -> None:
    served = 0

    def handle(call: Call, request: HeartbeatRequest) -> Body:
        nonlocal served
        served += 1
        return bytes(100_000)

    async with open_house(heartbeat_api(handle), reply_bytes_per_connection_max=MIB) as house:
        client = await house.connect(receive_bytes=8192)
        client.send(b"".join(map(beat_frame, range(500))))
        await house.settle(lambda: served > 10)
        await quiet()
        held = served
        assert held < 120, "the rest of the 50 MB waits until it is read"
        assert house.door.budget.used < 2 * MIB
        for _ in range(500):
            assert len(await client.read_frame()) == 100_005
        assert served == 500


def test_replies_that_nobody_reads_are_bounded_in_total(caplog: pytest.LogCaptureFixture) -> None:
    """When the memory is spent, it is taken from those who do not read."""

    def handle(call: Call, request: HeartbeatRequest) -> Body:
        return bytes(1_000_000)

    async def scenario() -> None:
        async with open_house(
            heartbeat_api(handle),
            reply_bytes_per_connection_max=20 * MIB,
            request_memory_bytes_max=30 * MIB,
        ) as house:
            clients = [await house.connect(receive_bytes=8192) for _ in range(6)]
            for client in clients:
                client.send(b"".join(map(beat_frame, range(20))))
            await house.settle(lambda: house.door.connections < 6)
            await quiet()
            assert house.door.budget.used <= 30 * MIB
            assert house.door.connections >= 1

    asyncio.run(scenario())
    assert "does not read its replies" in caplog.text


# Memory for requests


async def test_liars_cost_nothing() -> None:
    """Announcing 100 MB and sending nothing takes no memory and hinders nobody."""
    async with open_house(request_memory_bytes_max=MIB) as house:
        liars = [await house.connect() for _ in range(50)]
        for liar in liars:
            liar.send((100 * MIB).to_bytes(4, "big"))
        client = await house.connect()
        client.send(beat_frame(1, padding=500_000))
        assert await read_numbers(client, 1) == [1]
        assert house.door.budget.used <= MIB


async def test_half_frames_of_many_do_not_block_each_other() -> None:
    """Ten frames of 4 MiB share 8 MiB: all of them arrive, and small ones flow meanwhile."""
    async with open_house(request_memory_bytes_max=8 * MIB) as house:
        clients = [await house.connect() for _ in range(10)]
        frames = [beat_frame(number, padding=4 * MIB) for number in range(10)]
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame[: 3 * MIB])
        await quiet()
        assert house.door.budget.used <= 8 * MIB + 5 * MIB
        small = await house.connect()
        small.send(beat_frame(99))
        assert await read_numbers(small, 1) == [99]
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame[3 * MIB :])
        for number, client in enumerate(clients):
            assert await read_numbers(client, 1) == [number]


async def test_frames_that_wait_for_an_answer_count() -> None:
    handler = Waiting()
    async with open_house(heartbeat_api(handler), request_memory_bytes_max=MIB) as house:
        client = await house.connect()
        for number in range(8):
            client.send(beat_frame(number, padding=300_000))
        await house.settle(lambda: len(handler.calls) >= 1)
        await quiet()
        assert 1 <= len(handler.calls) <= 4
        assert house.door.budget.used < 2 * MIB
        small = await house.connect()
        small.send(beat_frame(50))
        answered = 0
        while answered < 9:
            await house.settle(lambda: bool(handler.calls))
            answered += len(handler.calls)
            handler.answer_all()
        assert await read_numbers(client, 8) == list(range(8))
        assert await read_numbers(small, 1) == [50]


async def test_a_large_buffer_is_given_back_when_the_connection_is_quiet() -> None:
    async with open_house() as house:
        client = await house.connect()
        client.send(beat_frame(1, padding=3 * MIB))
        assert await read_numbers(client, 1) == [1]
        assert house.door.budget.used >= 3 * MIB - 64 * 1024
        house.clock.ms += 2_000
        house.door.check()
        assert house.door.budget.used == 0
        client.send(beat_frame(2, padding=MIB))
        assert await read_numbers(client, 1) == [2]


# Reaping


async def test_idle_connections_are_reaped_and_busy_ones_are_not() -> None:
    handler = Waiting()
    async with open_house(heartbeat_api(handler), connection_idle_ms_max=10_000) as house:
        idle, busy = await house.connect(), await house.connect()
        busy.send(beat_frame(1))
        await house.settle(lambda: len(handler.calls) == 1)
        house.clock.ms += 9_000
        house.door.check()
        assert house.door.connections == 2
        house.clock.ms += 2_000
        house.door.check()
        assert await idle.is_closed()
        assert house.door.connections == 1
        handler.answer_all()
        assert await read_numbers(busy, 1) == [1]


def test_half_a_frame_is_reaped_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with open_house(frame_arrival_ms_max=30_000) as house:
            client = await house.connect()
            frame = beat_frame(1)
            client.send(frame + frame[:-10])
            assert await read_numbers(client, 1) == [1]
            for index in range(3):
                house.clock.ms += 9_000
                house.door.check()
                client.send(frame[index - 10 : index - 9])
                await quiet()
            assert house.door.connections == 1
            house.clock.ms += 9_000
            house.door.check()
            assert await client.is_closed(), "drops of bytes do not keep it alive"

    asyncio.run(scenario())
    assert "the rest of a frame did not arrive within 36 s" in caplog.text


async def test_those_who_stall_while_memory_is_short_are_reaped_together() -> None:
    """They hold all the memory with half frames and send no more: others get their turn."""
    async with open_house(request_memory_bytes_max=4 * MIB, frame_arrival_ms_max=30_000) as house:
        stalled = [await house.connect() for _ in range(6)]
        for client in stalled:
            client.send(beat_frame(1, padding=8 * MIB)[:MIB])
        await house.settle(lambda: half_frames(house) == len(stalled))
        house.clock.ms += 20_000
        honest = await house.connect()
        honest.send(beat_frame(2, padding=2 * MIB))
        await quiet()
        house.clock.ms += 11_000
        house.door.check()
        assert await read_numbers(honest, 1) == [2]
        assert house.door.connections == 1


async def test_the_timer_reaps_by_itself() -> None:
    async with open_house(connection_idle_ms_max=40, frame_arrival_ms_max=40) as house:
        client = await house.connect()
        await house.settle(lambda: house.door.connections == 1)
        house.clock.ms += 1_000
        assert await client.is_closed()
        await house.settle(lambda: house.door._timer is None)


# A full house


def test_more_connections_than_allowed_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with open_house(connections_max=2) as house:
            first, second = await house.connect(), await house.connect()
            await house.settle(lambda: house.door.connections == 2)
            for _ in range(5):
                assert await (await house.connect()).is_closed()
            second.close()
            await house.settle(lambda: house.door.connections == 1)
            fresh = await house.connect()
            for client in (first, fresh):
                client.send(beat_frame(1))
                assert await read_numbers(client, 1) == [1]

    with caplog.at_level(logging.WARNING, "penstock"):
        asyncio.run(scenario())
    assert len([line for line in caplog.records if "there are 2 connections" in line.message]) == 1


async def test_accepted_sockets_are_prepared() -> None:
    async with open_house() as house:
        await house.connect()
        await house.settle(lambda: house.door.connections == 1)
        (connection,) = house.door._connections.values()
        sock = connection._link._sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_taken_port_refuses_to_start() -> None:
    async with open_house() as house, open_house() as other:
        with pytest.raises(StartRefused, match=f"127.0.0.1:{house.port}"):
            await other.door.start("127.0.0.1", house.port)


# Draining


async def test_drain_answers_what_is_in_flight_and_reads_no_more() -> None:
    handler = Waiting()
    async with open_house(heartbeat_api(handler, is_pipelined=True)) as house:
        client, idle = await house.connect(), await house.connect()
        client.send(beat_frame(1) + beat_frame(2))
        await house.settle(lambda: len(handler.calls) == 2)
        drain = asyncio.create_task(house.door.drain(5))
        await asyncio.sleep(0)
        client.send(beat_frame(3))
        assert await idle.is_closed()
        handler.answer_all()
        assert await read_numbers(client, 2) == [1, 2]
        assert await client.is_closed()
        client.close()
        idle.close()
        await asyncio.wait_for(drain, PATIENCE_SECONDS)
        with pytest.raises(ConnectionError):
            await Client.connect(house.port)


def test_drain_answers_long_polls_at_once() -> None:
    ended: list[str] = []

    async def poll(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("poll")
        return HeartbeatResponse()

    async def scenario() -> None:
        api = heartbeat_api(poll, drain_code=ErrorCode.NOT_COORDINATOR)
        async with open_house(api) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            await house.settle(lambda: house.door.budget.used > 0)
            await asyncio.sleep(0.01)
            drain = asyncio.create_task(house.door.drain(5))
            number, answer = await client.read_beat()
            assert (number, answer.error_code) == (1, ErrorCode.NOT_COORDINATOR)
            client.close()
            await asyncio.wait_for(drain, PATIENCE_SECONDS)
        assert ended == ["poll"]

    asyncio.run(scenario())


def test_drain_ends_by_force_after_its_time() -> None:
    ended: list[str] = []

    async def never(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return HeartbeatResponse()

    async def scenario() -> None:
        async with open_house(heartbeat_api(never)) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            await house.settle(lambda: house.door.budget.used > 0)
            await asyncio.sleep(0.01)
            await house.door.drain(0.05)
            assert ended == ["cancelled"]
            assert house.door.connections == 0
            assert await client.is_closed()

    asyncio.run(scenario())


def test_drain_answers_what_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the other nodes gone, some calls never end by themselves; their clients are told."""
    monkeypatch.setattr(door_module, "PATIENCE_SECONDS", 0.02)
    ended: list[str] = []

    async def never(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return HeartbeatResponse()

    async def scenario() -> None:
        async with open_house(heartbeat_api(never)) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            await house.settle(lambda: house.door.budget.used > 0)
            await asyncio.sleep(0.01)
            drain = asyncio.create_task(house.door.drain(60))
            number, answer = await client.read_beat()
            assert (number, answer.error_code) == (1, ErrorCode.REQUEST_TIMED_OUT)
            client.close()
            await asyncio.wait_for(drain, PATIENCE_SECONDS)
        assert ended == ["cancelled"]

    asyncio.run(scenario())


async def test_drain_does_not_wait_long_for_peers_that_do_not_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_connection, "LINGER_SECONDS", 0.02)
    async with open_house() as house:
        with socket.create_connection(("127.0.0.1", house.port)) as deaf:
            await house.settle(lambda: house.door.connections == 1)
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                await house.door.drain(PATIENCE_SECONDS)
            assert deaf.recv(10) == b""


async def test_drain_flushes_large_replies_to_a_reader_who_still_sends() -> None:
    """A plain close with unread bytes would reset the connection and lose the replies."""

    def handle(call: Call, request: HeartbeatRequest) -> Body:
        return bytes(5_000_000)

    async with open_house(heartbeat_api(handle)) as house:
        client = await house.connect(receive_bytes=8192)
        client.send(beat_frame(1))
        await house.settle(lambda: house.door.budget.used > 0)
        drain = asyncio.create_task(house.door.drain(5))
        client.send(beat_frame(2) * 1000)
        assert len(await client.read_frame()) == 5_000_005
        assert await client.is_closed()
        client.close()
        await asyncio.wait_for(drain, PATIENCE_SECONDS)


# Memory that connections share


async def test_halves_of_frames_from_many_connections_are_not_mixed_up() -> None:
    async with open_house() as house:
        clients = [await house.connect() for _ in range(5)]
        frames = [beat_frame(number, padding=100 * number) for number in range(5)]
        for number, (client, frame) in enumerate(zip(clients, frames, strict=True)):
            # A whole one first: the half is what is left of what came.
            client.send(frame + frame[:-3])
            assert (await client.read_beat())[0] == number
        await house.settle(lambda: half_frames(house) == 5)
        for number, (client, frame) in enumerate(zip(clients, frames, strict=True)):
            client.send(frame[-3:])
            assert (await client.read_beat())[0] == number


# What a connection costs

IDLE_BYTES_MAX = 2_000


async def test_an_idle_connection_holds_little_memory() -> None:
    """All that Python allocates for one that has asked something and waits to ask again."""
    count = 100
    async with open_house() as house:
        sockets = [await asked(house) for _ in range(10)]
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            sockets += [await asked(house) for _ in range(count)]
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        for sock in sockets:
            sock.close()
        assert held / count < IDLE_BYTES_MAX
        await house.settle(lambda: house.door.connections == 0)


async def asked(house: House) -> socket.socket:
    """A connection without a stream of the client's: those would be counted too."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", house.port))
    await loop.sock_sendall(sock, beat_frame(1))
    assert await loop.sock_recv(sock, 1024)
    return sock
