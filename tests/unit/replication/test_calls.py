"""Proves that a call gets one answer, or says how much is known about its outcome."""

import asyncio

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.replication import calls
from penstock.replication.exchange import Exchange
from tests.unit.replication.peers_kit import Wire
from tests.unit.replication.rig import PATIENCE_S

ONE, TWO = BrokerId(1), BrokerId(2)


class Pair:
    """Two connected exchanges; the second answers."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.one, self.two = self.wire.exchange(1), self.wire.exchange(2)
        self.wire.connect(1, 2)
        self.gate = asyncio.Event()
        self.served = 0

    async def echo(self, node: BrokerId, payload: bytes) -> bytes:
        return b"%d:" % node + payload

    async def wait(self, _: BrokerId, __: bytes) -> bytes:
        self.served += 1
        await self.gate.wait()
        return b"done"

    async def refuse(self, _: BrokerId, __: bytes) -> bytes:
        raise Refused(Reason.NOT_CONTROLLER, "Node 3 is the controller.")

    async def fail(self, _: BrokerId, __: bytes) -> bytes:
        raise RuntimeError("a bug")

    async def call(self, exchange: Exchange, node: BrokerId, method: str) -> bytes:
        task = asyncio.ensure_future(exchange.call(node, method, b"question", PATIENCE_S))
        await self.wire.settle()
        return await task

    async def refusal(self, exchange: Exchange, node: BrokerId, method: str) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.call(exchange, node, method)
        return caught.value


async def test_an_answer_and_a_refusal_come_back() -> None:
    pair = Pair()
    pair.two.serve("echo", pair.echo)
    pair.two.serve("refuse", pair.refuse)
    pair.two.serve("fail", pair.fail)
    assert await pair.call(pair.one, TWO, "echo") == b"1:question"
    refused = await pair.refusal(pair.one, TWO, "refuse")
    assert refused.reason is Reason.NOT_CONTROLLER
    assert refused.detail == "Node 3 is the controller."
    assert (await pair.refusal(pair.one, TWO, "fail")).reason is Reason.UNKNOWN_SERVER_ERROR
    unknown = await pair.refusal(pair.one, TWO, "unheard-of")
    assert unknown.reason is Reason.UNSUPPORTED_VERSION


async def test_a_call_to_the_own_node_needs_no_connection() -> None:
    pair = Pair()
    pair.one.serve("echo", pair.echo)
    pair.one.serve("refuse", pair.refuse)
    pair.one.serve("wait", pair.wait)
    await pair.wire.settle()
    frames = pair.wire.frames
    assert await pair.one.call(ONE, "echo", b"x", PATIENCE_S) == b"1:x"
    with pytest.raises(Refused) as caught:
        await pair.one.call(ONE, "refuse", b"", PATIENCE_S)
    assert caught.value.reason is Reason.NOT_CONTROLLER
    with pytest.raises(Refused) as caught:
        await pair.one.call(ONE, "wait", b"", 0.01)
    assert caught.value.reason is Reason.REQUEST_TIMED_OUT
    assert pair.wire.frames == frames


async def test_without_a_connection_nothing_was_asked() -> None:
    pair = Pair()
    refused = await pair.refusal(pair.one, BrokerId(9), "echo")
    assert refused.reason is Reason.LEADER_NOT_AVAILABLE


async def test_a_late_answer_and_a_lost_connection_leave_the_outcome_open() -> None:
    pair = Pair()
    pair.two.serve("wait", pair.wait)
    late = asyncio.ensure_future(pair.one.call(TWO, "wait", b"", 0.01))
    await pair.wire.settle()
    with pytest.raises(Refused) as caught:
        await late
    assert caught.value.reason is Reason.REQUEST_TIMED_OUT
    lost = asyncio.ensure_future(pair.one.call(TWO, "wait", b"", PATIENCE_S))
    await pair.wire.settle()
    assert pair.served == 2
    pair.wire.cut(1, 2)
    with pytest.raises(Refused) as caught:
        await lost
    assert caught.value.reason is Reason.REQUEST_TIMED_OUT
    assert "lost before it answered" in caught.value.detail
    # The answers that come now find nobody, and the node goes on.
    pair.gate.set()
    pair.wire.connect(1, 2)
    pair.two.serve("echo", pair.echo)
    assert await pair.call(pair.one, TWO, "echo") == b"1:question"


async def test_a_cancelled_caller_is_cancelled() -> None:
    pair = Pair()
    pair.two.serve("wait", pair.wait)
    task = asyncio.ensure_future(pair.one.call(TWO, "wait", b"", PATIENCE_S))
    await pair.wire.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not pair.one._calls._waiting


async def test_one_node_can_not_have_any_number_of_calls_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "CALLS_SERVED_PER_NODE_MAX", 2)
    pair = Pair()
    pair.two.serve("wait", pair.wait)
    two = [asyncio.ensure_future(pair.one.call(TWO, "wait", b"", PATIENCE_S)) for _ in range(2)]
    await pair.wire.settle()
    assert (await pair.refusal(pair.one, TWO, "wait")).reason is Reason.THROTTLED
    pair.gate.set()
    await pair.wire.settle()
    assert await asyncio.gather(*two) == [b"done", b"done"]
    assert await pair.call(pair.one, TWO, "wait") == b"done"


async def test_stopping_ends_what_is_being_answered() -> None:
    pair = Pair()
    pair.two.serve("wait", pair.wait)
    task = asyncio.ensure_future(pair.one.call(TWO, "wait", b"", 0.05))
    await pair.wire.settle()
    pair.two.stop()
    await pair.wire.settle()
    assert not pair.two._calls._serving
    with pytest.raises(Refused):
        await task
