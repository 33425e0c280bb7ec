"""Proves that calls between two processes are answered, refused, cancelled, and never lost."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack

import pytest
import uvloop

from penstock.model.errors import Reason, Refused
from penstock.net import call_channel
from penstock.net.call_channel import CallChannel, Serve

WAIT_S = 30.0


async def echo(method: str, payload: bytes) -> bytes:
    return method.encode() + b":" + payload


@asynccontextmanager
async def ends(serve: Serve) -> AsyncIterator[tuple[CallChannel, CallChannel]]:
    left, right = socket.socketpair()
    asking = await CallChannel.open(left)
    answering = await CallChannel.open(right, serve)
    try:
        yield asking, answering
    finally:
        asking.close()
        answering.close()
        await asyncio.sleep(0)


async def refusal(channel: CallChannel, method: str, timeout_s: float = WAIT_S) -> Refused:
    with pytest.raises(Refused) as caught:
        await channel.call(method, b"", timeout_s)
    return caught.value


async def test_many_calls_are_answered_each_with_its_own_answer() -> None:
    async def serve(method: str, payload: bytes) -> bytes:
        # The later ones are answered first.
        for _ in range(200 - int(payload)):
            await asyncio.sleep(0)
        return await echo(method, payload)

    async with ends(serve) as (asking, _):
        answers = await asyncio.gather(
            *(asking.call("say", b"%d" % number, WAIT_S) for number in range(200))
        )
    assert answers == [b"say:%d" % number for number in range(200)]


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_large_payloads_come_whole(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        async with ends(echo) as (asking, _):
            large = bytes(range(256)) * 40_000
            answers = await asyncio.gather(*(asking.call("", large, WAIT_S) for _ in range(4)))
        assert answers == [b":" + large] * 4

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(scenario())


async def test_a_refusal_travels_with_reason_and_sentence() -> None:
    async def serve(method: str, payload: bytes) -> bytes:
        raise Refused(Reason.INVALID_TOPIC, "Größe: no.")

    async with ends(serve) as (asking, _):
        refused = await refusal(asking, "create")
    assert (refused.reason, refused.detail) == (Reason.INVALID_TOPIC, "Größe: no.")


async def test_a_bug_is_logged_and_the_asker_gets_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(method: str, payload: bytes) -> bytes:
        raise ZeroDivisionError("secret")

    async with ends(serve) as (asking, _):
        refused = await refusal(asking, "create")
    assert refused.reason is Reason.UNKNOWN_SERVER_ERROR
    assert "secret" not in refused.detail
    assert "ZeroDivisionError" in caplog.text


async def test_an_end_that_serves_nothing_refuses() -> None:
    async with ends(echo) as (_, answering):
        assert (await refusal(answering, "hello")).reason is Reason.UNSUPPORTED_VERSION


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_the_other_end_stops_to_work_on_what_nobody_wants(how: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def serve(method: str, payload: bytes) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return b""

    async with ends(serve) as (asking, _):
        call = asyncio.ensure_future(asking.call("wait", b"", 0.01 if how == "late" else WAIT_S))
        await asyncio.wait_for(started.wait(), WAIT_S)
        if how == "cancelled":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.reason is Reason.REQUEST_TIMED_OUT
        await asyncio.wait_for(stopped.wait(), WAIT_S)


async def test_calls_under_way_are_refused_when_the_other_process_ends() -> None:
    async def serve(method: str, payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with ends(serve) as (asking, answering):
        call = asyncio.ensure_future(refusal(asking, "wait"))
        await asyncio.sleep(0)
        answering.close()
        assert (await call).reason is Reason.REQUEST_TIMED_OUT
        # And those after it at once, because they did not go anywhere.
        assert (await refusal(asking, "wait")).reason is Reason.LEADER_NOT_AVAILABLE


async def test_too_many_calls_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_channel, "CALLS_UNDER_WAY_MAX", 2)
    at_once, most = 0, 0

    async def serve(method: str, payload: bytes) -> bytes:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return b""

    async with ends(serve) as (asking, _):
        await asyncio.gather(*(asking.call("", b"", WAIT_S) for _ in range(50)))
    assert most <= 2


async def test_one_that_waits_too_long_for_its_turn_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_channel, "CALLS_UNDER_WAY_MAX", 1)

    async def serve(method: str, payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with ends(serve) as (asking, _):
        first = asyncio.ensure_future(asking.call("", b"", WAIT_S))
        await asyncio.sleep(0)
        assert (await refusal(asking, "", 0.01)).reason is Reason.THROTTLED
        first.cancel()


@pytest.mark.parametrize(
    "bad",
    [
        pack(">IBI", 2**31, 1, 1),
        pack(">IBI", 1, 1, 1),
        pack(">IBI", 5, 77, 1),
        pack(">IBI", 5, 1, 1),
        pack(">IBI", 10, 3, 1) + b"\x04NONE",
        pack(">IBI", 7, 1, 1) + b"\x01\xff",
    ],
)
async def test_bytes_that_are_not_a_frame_end_the_connection(bad: bytes) -> None:
    closed = asyncio.Event()
    left, right = socket.socketpair()
    with right:
        await CallChannel.open(left, echo, closed.set)
        right.sendall(bad)
        await asyncio.wait_for(closed.wait(), WAIT_S)
