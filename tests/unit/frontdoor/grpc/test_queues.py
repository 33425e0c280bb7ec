"""Proves what becomes of leases when a worker settles them, goes away, or is not answered."""

import asyncio
from typing import Any

import pytest
from grpc import StatusCode

from penstock.frontdoor.grpc import messages
from penstock.frontdoor.grpc.queue_subscription import subscribe
from penstock.frontdoor.grpc.queues import METHODS, poll
from penstock.frontdoor.grpc.statuses import Failure
from penstock.frontdoor.remote.queueing import Messages
from tests.unit.frontdoor.grpc.test_streams import Talk, make_context
from tests.unit.frontdoor.remote.fake_broker import FakeBroker
from tests.unit.frontdoor.remote.fake_queue import FakeQueue

Said = messages.QueueSubscribeRequest


class Rig:
    def __init__(self) -> None:
        fake = FakeBroker()
        self.queue = FakeQueue(fake)
        self.context = make_context(fake)
        self.talk = Talk()

    def start(self, credit: int) -> "asyncio.Task[None]":
        start = messages.StartQueueSubscription(topic="t", group="g", credit=credit)
        self.talk.say(Said(start=start))
        return asyncio.create_task(subscribe(self.context, self.talk))

    async def pushed(self) -> list[str]:
        return [each.token for each in (await self.talk.heard.get()).messages.messages]

    async def settled(self) -> list[tuple[str, int]]:
        found = (await self.talk.heard.get()).settled.outcomes
        return [(each.outcome, each.lease_ms) for each in found]

    async def end(self, running: "asyncio.Task[None]") -> list[tuple[str, list[int]]]:
        """What is said of leases after the client has said all."""
        before = len(self.queue.settled)
        self.talk.say(None)
        await running
        await self.context.drain()
        return self.queue.settled[before:]


@pytest.mark.parametrize("outcome", ["unknown", "forbidden", "unavailable"])
async def test_what_was_not_settled_is_given_back_at_the_end(outcome: str) -> None:
    rig = Rig()
    await rig.queue.send(b"a", b"b")
    running = rig.start(credit=2)
    first, second = await rig.pushed()
    rig.talk.say(Said(ack=messages.Tokens(tokens=[first])))
    assert await rig.settled() == [("ok", 0)]
    rig.queue.outcome = outcome
    rig.talk.say(Said(reject=messages.Tokens(tokens=[second])))
    assert await rig.settled() == [(outcome, 0)]
    assert await rig.end(running) == [("nack", [1])]


async def test_an_attempt_counts_only_for_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    # Each reply has room for one.
    monkeypatch.setattr("penstock.frontdoor.grpc.queue_subscription.fitting", lambda _: 1)
    room = asyncio.Semaphore(2)
    heard = rig.talk.send

    async def send(reply: Any) -> None:
        await heard(reply)
        await room.acquire()

    monkeypatch.setattr(rig.talk, "send", send)
    await rig.queue.send(b"a", b"b", b"c", b"d")
    running = rig.start(credit=4)
    # The third is on its way: the client may have it.
    assert [len(await rig.pushed()) for _ in range(3)] == [1, 1, 1]
    assert await rig.end(running) == [("undo", [3]), ("nack", [0, 1, 2])]


async def test_a_lease_that_begins_again_is_known_for_the_time_of_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    monkeypatch.setattr("penstock.frontdoor.grpc.limits.UNSETTLED_MAX", 1)
    await rig.queue.send(b"a", b"b")
    running = rig.start(credit=1)
    tokens = await rig.pushed()
    rig.talk.say(Said(extend=messages.ExtendTokens(tokens=tokens)))
    assert await rig.settled() == [("ok", 60_000)]
    # So there is no room for another one.
    rig.talk.say(Said(credit=1))
    with pytest.raises(Failure, match="1 messages are not settled"):
        await running
    await rig.context.drain()
    assert rig.queue.settled[1:] == [("nack", [0])]


async def test_a_poll_that_is_cancelled_when_it_is_answered_leaves_nothing_leased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    queueing = rig.context.parts.queueing
    ask = queueing.poll

    async def ask_and_cancel(*given: Any, **named: Any) -> Messages:
        found = await ask(*given, **named)
        polling.cancel()
        return found

    monkeypatch.setattr(queueing, "poll", ask_and_cancel)
    await rig.queue.send(b"a", b"b")
    request = messages.PollRequest(topic="t", group="g", records_max=2)
    polling = asyncio.create_task(poll(rig.context, request, rig.talk))
    with pytest.raises(asyncio.CancelledError):
        await polling
    await rig.context.drain()
    assert rig.queue.settled == [("undo", [0, 1])]


@pytest.mark.parametrize("verb", ["Ack", "Nack", "Extend", "Reject"])
async def test_a_request_has_only_so_many_tokens(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.frontdoor.grpc.limits.TOKENS_MAX", 2)
    rig = Rig()
    shape = getattr(messages, f"{verb}Request")
    tokens = ["x"] * 3
    answer = METHODS[verb]
    with pytest.raises(Failure, match="3 tokens are too many: a request has at most 2") as caught:
        await answer(rig.context, shape(topic="t", group="g", tokens=tokens), rig.talk)
    assert (caught.value.code, caught.value.field) == (StatusCode.INVALID_ARGUMENT, "tokens")
    await answer(rig.context, shape(topic="t", group="g", tokens=tokens[:2]), rig.talk)
    running = rig.start(credit=1)
    word = verb.lower()
    rig.talk.say(Said(**{word: {"tokens": tokens}}))
    with pytest.raises(Failure, match="3 tokens are too many") as caught:
        await running
    assert caught.value.field == f"{word}.tokens"
    assert not rig.queue.settled
