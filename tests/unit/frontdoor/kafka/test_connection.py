"""A connection's conversation: framing, order, faults of the peer, faults of ours."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.broker.later import Later, Task
from penstock.frontdoor.kafka.api import Body, Call
from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.net import frame_connection
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from .kit import (
    LENGTH,
    Client,
    beat,
    beat_frame,
    describe_api,
    describe_frame,
    frame_of,
    heartbeat_api,
    open_house,
    quiet,
    request_frame,
)


def late(answer: Later[Any]) -> Callable[[Call, Any], Any]:
    return lambda call, request: answer


async def numbers(client: Client, count: int) -> list[int]:
    answers = [await client.read_beat() for _ in range(count)]
    assert all(number == answer.throttle_time_ms for number, answer in answers)
    return [number for number, _ in answers]


async def test_frames_split_at_every_byte() -> None:
    async with open_house() as house:
        client = await house.connect()
        stream = beat_frame(1) + beat_frame(2)
        for cut in range(1, len(stream)):
            client.send(stream[:cut])
            await asyncio.sleep(0)
            client.send(stream[cut:])
            assert await numbers(client, 2) == [1, 2]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_many_pipelined_requests_are_answered_in_order(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async with open_house() as house:
            client = await house.connect()
            client.send(b"".join(beat_frame(number) for number in range(5_000)))
            assert await numbers(client, 5_000) == list(range(5_000))

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_large_frames_then_small_ones(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async with open_house() as house:
            client = await house.connect()
            for number in range(3):
                client.send(beat_frame(number, padding=3_000_000) + beat_frame(number))
                assert await numbers(client, 2) == [number, number]

    run(scenario())


async def test_replies_keep_the_order_of_requests() -> None:
    """Answers that come in any order leave in request order, mixed with immediate ones."""
    waiting: dict[int, Later[HeartbeatResponse]] = {}

    def handle(call: Call, request: HeartbeatRequest) -> Any:
        number = request.generation_id
        if number % 3 == 0:
            return beat(call, request)
        later = waiting[number] = Later()
        return later if number % 3 == 1 else Task(slow(later))

    async def slow(later: Later[HeartbeatResponse]) -> HeartbeatResponse:
        return await later

    async with open_house(heartbeat_api(handle, is_pipelined=True)) as house:
        client = await house.connect()
        client.send(b"".join(map(beat_frame, range(30))))
        await house.settle(lambda: len(waiting) == 20)
        for number in sorted(waiting, key=lambda number: (number * 7) % 30):
            waiting[number].settle(HeartbeatResponse(throttle_time_ms=number))
            await asyncio.sleep(0)
        assert await numbers(client, 30) == list(range(30))


async def test_a_request_starts_when_those_before_it_are_answered() -> None:
    """Then it sees what they did. Only an API that says so lets its own calls start before."""
    started: list[str] = []
    waiting: list[Callable[[], None]] = []

    def later(kind: str, answer: Any) -> Any:
        coming: Later[Any] = Later()
        started.append(kind)
        waiting.append(partial(coming.settle, answer))
        return coming

    def handle_beat(call: Call, request: HeartbeatRequest) -> Any:
        return later("beat", HeartbeatResponse())

    def handle_describe(call: Call, request: Any) -> Any:
        return later("describe", DescribeGroupsResponse())

    apis = heartbeat_api(handle_beat, is_pipelined=True), describe_api(handle_describe)
    async with open_house(*apis) as house:
        client = await house.connect()
        frames = [beat_frame(1), beat_frame(2), describe_frame(3), describe_frame(4)]
        client.send(b"".join([*frames, beat_frame(5)]))
        for expected in (["beat", "beat"], ["describe"], ["describe"], ["beat"]):
            await house.settle(lambda expected=expected: len(started) == len(expected))
            await quiet()
            assert started == expected
            for answer in waiting:
                answer()
            started.clear()
            waiting.clear()
        replies = [LENGTH.unpack_from(await client.read_frame())[0] for _ in range(5)]
        assert replies == [1, 2, 3, 4, 5]


async def test_no_reply_when_the_handler_has_none() -> None:
    """Produce with acks=0 has no reply, at once or later, and does not disturb the order."""

    async def later() -> None:
        await asyncio.sleep(0)

    def handle(call: Call, request: HeartbeatRequest) -> Any:
        if request.generation_id == 1:
            return None
        return Task(later()) if request.generation_id == 2 else beat(call, request)

    async with open_house(heartbeat_api(handle)) as house:
        client = await house.connect()
        client.send(b"".join(map(beat_frame, range(4))))
        assert await numbers(client, 2) == [0, 3]


class PinnedFile:
    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self._descriptor = os.open(path, os.O_RDONLY)
        self.pins = 0

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_large_file_ranges_reach_the_client(run: Callable[[Any], None], tmp_path: Path) -> None:
    data = os.urandom(1_000_000) * 12
    file = PinnedFile(tmp_path / "segment", data)

    def handle(call: Call, request: HeartbeatRequest) -> Body:
        return [b"before", FileRange(file, 7, len(data) - 7), b"after"]

    async def scenario() -> None:
        async with open_house(heartbeat_api(handle)) as house:
            client = await house.connect()
            client.send(beat_frame(1) + beat_frame(2))
            for _ in range(2):
                reply = await client.read_frame()
                assert reply[5:] == b"before" + data[7:] + b"after"
            assert file.pins == 0

    run(scenario())


class Releasing(Later[list[FileRange]]):
    def drop(self, answer: list[FileRange]) -> None:
        for part in answer:
            part.release()


async def test_ranges_are_released_when_the_client_leaves(tmp_path: Path) -> None:
    """Sent in part, waiting in line, or answered after the end: each range is released once."""
    file = PinnedFile(tmp_path / "segment", bytes(10_000_000))
    pending: list[Releasing] = []

    def handle(call: Call, request: HeartbeatRequest) -> Any:
        if request.generation_id != 2:
            return [FileRange(file, 0, 10_000_000)]
        pending.append(Releasing())
        return pending[0]

    async with open_house(heartbeat_api(handle, is_pipelined=True)) as house:
        client = await house.connect()
        client.send(beat_frame(2) + beat_frame(3))
        await house.settle(lambda: file.pins == 1)
        other = await house.connect()
        other.send(beat_frame(1))
        await house.settle(lambda: file.pins == 2)
        client.close()
        other.close()
        await house.settle(lambda: file.pins == 0)
        pending[0].settle([FileRange(file, 0, 10)])
        await house.settle(lambda: file.pins == 0)


# Faults of the peer


@pytest.mark.parametrize(
    "bad",
    [
        (-1).to_bytes(4, "big", signed=True),
        (2**31 - 1).to_bytes(4, "big"),
        frame_of(b""),
        frame_of(b"short"),
        frame_of(beat_frame(1)[4:20]),
        request_frame(HeartbeatRequest(), ApiKey.HEARTBEAT, 4, 1)[:-1] + b"\xff",
        frame_of(b"\x00\x0c\x7f\xff" + bytes(20)),
        frame_of(b"\x7f\xff\x00\x00" + bytes(20)),
    ],
    ids=["negative", "huge", "empty", "tiny", "cut", "bad tags", "bad version", "unknown API"],
)
def test_bad_frames_close_the_connection_with_one_line(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_house() as house:
            client = await house.connect()
            client.send(beat_frame(1) + bad + beat_frame(2))
            assert await numbers(client, 1) == [1], "what came before is still answered"
            assert await client.is_closed()
            other = await house.connect()
            other.send(beat_frame(5))
            assert await numbers(other, 1) == [5], "others do not notice"

    with caplog.at_level(logging.DEBUG, "penstock"):
        asyncio.run(scenario())
    # Of this door: on a slow machine asyncio may complain as well.
    (line,) = [
        record
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name == frame_connection.logger.name
    ]
    assert line.getMessage().startswith("closed 127.0.0.1:")
    assert line.exc_info is None


# Faults of ours, and refusals


def test_a_refusal_is_answered_without_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(call: Call, request: HeartbeatRequest) -> Any:
        raise Refused(Reason.UNKNOWN_MEMBER_ID)

    async def refuse_later(call: Call, request: HeartbeatRequest) -> Any:
        await asyncio.sleep(0)
        raise Refused(Reason.UNKNOWN_MEMBER_ID)

    async def scenario(handle: Any) -> None:
        async with open_house(heartbeat_api(handle)) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            _, answer = await client.read_beat()
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(scenario(refuse))
    asyncio.run(scenario(refuse_later))
    assert not [record for record in caplog.records if record.name.startswith("penstock")]


def test_a_refusal_that_the_api_can_not_tell_closes(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(call: Call, request: Any) -> Any:
        raise Refused(Reason.INVALID_REQUEST, "no such thing")

    async def scenario() -> None:
        async with open_house(describe_api(refuse)) as house:
            client = await house.connect()
            client.send(describe_frame(1))
            assert await client.is_closed()

    asyncio.run(scenario())
    assert "DESCRIBE_GROUPS v5 was refused: no such thing" in caplog.text


def test_a_late_refusal_that_the_api_can_not_tell_closes_without_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a broker without its cluster does to those who look for a coordinator."""

    async def refuse_later(call: Call, request: Any) -> Any:
        await asyncio.sleep(0)
        raise RefusedWith(ErrorCode.REBOOTSTRAP_REQUIRED, "no controller")

    faults: list[Any] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        async with open_house(describe_api(refuse_later)) as house:
            client = await house.connect()
            client.send(describe_frame(1) + describe_frame(2))
            assert await client.is_closed()

    asyncio.run(scenario())
    assert "DESCRIBE_GROUPS v5 was refused: no controller" in caplog.text
    assert faults == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_bug_in_a_handler_is_logged_and_answered(
    is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(call: Call, request: HeartbeatRequest) -> Any:
        if not is_late:
            raise RuntimeError("our bug")
        later: Later[Any] = Later()
        asyncio.get_running_loop().call_soon(later.fail, RuntimeError("our bug"))
        return later

    async def scenario() -> None:
        async with open_house(heartbeat_api(fail)) as house:
            client = await house.connect()
            client.send(beat_frame(1) + beat_frame(2))
            for _ in range(2):
                _, answer = await client.read_beat()
                assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(scenario())
    assert "HEARTBEAT v4 failed, which is a bug" in caplog.text
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [repr(error) for error in raised] == ["RuntimeError('our bug')"] * 2


def test_a_response_that_can_not_be_encoded_is_a_bug_too(caplog: pytest.LogCaptureFixture) -> None:
    def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=2**70)

    async def scenario() -> None:
        async with open_house(heartbeat_api(handle)) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            _, answer = await client.read_beat()
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(scenario())
    assert "which is a bug" in caplog.text


async def test_a_bug_without_an_error_response_costs_that_connection_only() -> None:
    def fail(call: Call, request: Any) -> Any:
        raise RuntimeError("our bug")

    async with open_house(describe_api(fail), heartbeat_api(beat)) as house:
        client, other = await house.connect(), await house.connect()
        client.send(describe_frame(1))
        assert await client.is_closed()
        other.send(beat_frame(1))
        assert await numbers(other, 1) == [1]


# Leaving


def test_calls_are_cancelled_when_the_client_leaves() -> None:
    seen: list[str] = []

    class Watched(Later[None]):
        def cancel(self) -> None:
            super().cancel()
            seen.append("cancelled")

    async def wait() -> None:
        seen.append("waiting")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    def handle(call: Call, request: HeartbeatRequest) -> Any:
        return Task(wait()) if request.generation_id == 1 else Watched()

    async def scenario() -> None:
        async with open_house(heartbeat_api(handle, is_pipelined=True)) as house:
            client = await house.connect()
            client.send(beat_frame(1) + beat_frame(2) + describe_frame(3))
            await house.settle(lambda: "waiting" in seen)
            client.close()
            await house.settle(lambda: len(seen) == 3)

    asyncio.run(scenario())
    assert seen == ["waiting", "cancelled", "cancelled"]


def test_handlers_see_who_calls() -> None:
    seen: list[tuple[int, str | None, str, int, float]] = []

    def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        peer = call.connection
        seen.append((call.version, call.client_id, peer.peer_host, peer.id, call.now))
        return beat(call, request)

    async def scenario() -> None:
        async with open_house(heartbeat_api(handle)) as house:
            client = await house.connect()
            client.send(beat_frame(1))
            await numbers(client, 1)

    asyncio.run(scenario())
    assert seen == [(4, "tester", "127.0.0.1", 1, 1000.0)]


async def test_encoded_frames_get_the_right_header() -> None:
    def handle(call: Call, request: HeartbeatRequest) -> Body:
        return [encode(HeartbeatResponse(throttle_time_ms=9), call.version)]

    async with open_house(heartbeat_api(handle)) as house:
        client = await house.connect()
        client.send(beat_frame(77))
        assert await client.read_beat() == (77, HeartbeatResponse(throttle_time_ms=9))
