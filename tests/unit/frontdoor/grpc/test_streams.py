"""Proves what streams promise, on a broker in memory: order, answers, credits, and a clean end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.broker.doors import calls
from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.context import Budget, Context
from penstock.frontdoor.grpc.publish import publish, publish_stream
from penstock.frontdoor.grpc.statuses import Failure
from penstock.frontdoor.grpc.subscribe import subscribe
from penstock.frontdoor.remote.parts import Parts
from penstock.frontdoor.remote.stopping import Stopping
from penstock.model.errors import Reason, Refused
from penstock.records.rows import Row
from tests.unit.frontdoor.remote.fake_broker import FakeBroker
from tests.waiting import until


class Talk:
    """The client's side of a call; `None` is its end."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    def metadata(self, name: str) -> str | None:
        return None

    def bounded_s(self, wait_s: float) -> float:
        return wait_s

    async def requests(self) -> AsyncIterator[Any]:
        while (request := await self.said.get()) is not None:
            yield request

    async def send(self, reply: Any) -> None:
        self.heard.put_nowait(reply)

    def say(self, request: Any) -> None:
        self.said.put_nowait(request)


def make_context(fake: FakeBroker) -> Context:
    return Context(parts=Parts.on(fake), now_ms=lambda: 1_000, stopping=Stopping())


def request(*values: bytes, topic: str = "t", **given: Any) -> messages.PublishRequest:
    records = [messages.NewRecord(value=value, partition=0) for value in values]
    return messages.PublishRequest(topic=topic, records=records, **given)


async def test_requests_are_written_and_answered_in_order() -> None:
    fake = FakeBroker()
    fake.topic("t", partitions=2)
    context, talk = make_context(fake), Talk()
    # The first goes to two partitions, which must not let the second overtake it.
    first = request(b"0")
    first.records.add(value=b"other", partition=1)
    talk.say(first)
    for number in range(1, 40):
        talk.say(request(b"%d" % number, topic=""))
    talk.say(None)
    await publish_stream(context, talk)
    assert [record.value for record in fake.records("t")] == [b"%d" % n for n in range(40)]
    replies = [talk.heard.get_nowait() for _ in range(40)]
    assert [list(reply.written.offsets) for reply in replies[1:]] == [[n] for n in range(1, 40)]
    assert talk.heard.empty()
    assert context.streams == 0
    await until(lambda: context.budget.try_take(limits.REQUEST_BYTES_MAX))


async def test_a_refused_request_does_not_end_the_stream() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), Talk()
    fake.refusals = [None, Refused(Reason.NOT_ENOUGH_REPLICAS, "too few")]
    for each in (request(b"a", topic=""), request(), request(b"b"), request(b"c", topic="none")):
        talk.say(each)
    talk.say(None)
    await publish_stream(context, talk)
    outcomes = [talk.heard.get_nowait() for _ in range(4)]
    reasons = [each.problem.reason for each in outcomes]
    assert reasons == ["INVALID_REQUEST", "INVALID_REQUEST", "", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert outcomes[0].problem.message == "The first request must name a topic."


async def test_a_stream_that_is_cancelled_gives_back_what_it_holds() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), Talk()
    fake.gate.clear()
    running = asyncio.ensure_future(publish_stream(context, talk))
    for _ in range(2 * limits.REQUESTS_UNDER_WAY_MAX):
        talk.say(request(b"x" * 100))
    while talk.said.qsize() > limits.REQUESTS_UNDER_WAY_MAX:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    for _ in range(10):
        await asyncio.sleep(0)
    assert context.budget.try_take(limits.REQUEST_BYTES_MAX)
    assert context.streams == 0


class UnreadTalk(Talk):
    """Of a client that does not read its replies."""

    async def send(self, reply: Any) -> None:
        await super().send(reply)
        await asyncio.Event().wait()


async def test_a_client_that_does_not_read_its_replies_holds_nothing_of_the_budget() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), UnreadTalk()
    for _ in range(limits.REQUESTS_UNDER_WAY_MAX):
        talk.say(request(b"x" * 100))
    running = asyncio.ensure_future(publish_stream(context, talk))
    await talk.heard.get()
    await until(lambda: len(fake.records("t")) == limits.REQUESTS_UNDER_WAY_MAX)
    await until(lambda: context.budget.try_take(limits.REQUEST_BYTES_MAX))
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_a_call_beyond_the_budget_is_refused() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context = make_context(fake)
    context.budget = Budget(50)
    with pytest.raises(Failure, match="under way"):
        await publish(context, request(b"x" * 100), Talk())
    assert list((await publish(context, request(b"x"), Talk())).offsets) == [0]


def start(**given: Any) -> messages.SubscribeRequest:
    earliest = messages.Start(edge=messages.EDGE_EARLIEST)
    return messages.SubscribeRequest(
        start=messages.StartSubscription(topic="t", start=earliest, **given)
    )


async def test_a_subscriber_gets_what_it_has_credit_for() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), Talk()
    await publish(context, request(*(b"%d" % number for number in range(10))), Talk())
    committed: list[calls.CommitGroupOffsets] = []
    fake.answers["ReadGroupOffsets"] = lambda _: calls.GroupOffsets(offsets=[])
    fake.answers["CommitGroupOffsets"] = lambda call: committed.append(call) or calls.Done()
    running = asyncio.ensure_future(subscribe(context, talk))
    talk.say(start(group="g", credit=3))
    assert [each.offset for each in (await talk.heard.get()).started.positions] == [0]
    pushed = (await talk.heard.get()).records
    assert ([each.offset for each in pushed.records], pushed.next_offset) == ([0, 1, 2], 3)
    position = messages.Position(partition=0, offset=3)
    talk.say(messages.SubscribeRequest(commit=messages.Positions(positions=[position])))
    assert list((await talk.heard.get()).committed.positions) == [position]
    assert [each.offset for call in committed for each in call.offsets] == [3]
    talk.say(messages.SubscribeRequest(credit=1))
    assert [each.offset for each in (await talk.heard.get()).records.records] == [3]
    talk.say(messages.SubscribeRequest(credit=100))
    assert len((await talk.heard.get()).records.records) == 6
    talk.say(None)
    await running
    assert talk.heard.empty()
    assert context.streams == 0


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (messages.SubscribeRequest(credit=1), "start"),
        (None, "start"),
        (start(credit=-1), "credit"),
        (start(partitions=[0], positions=[messages.Position(offset=-1)]), "start.positions"),
    ],
)
async def test_a_bad_start_is_refused(said: Any, field: str) -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), Talk()
    talk.say(said)
    with pytest.raises(Failure) as caught:
        await subscribe(context, talk)
    assert caught.value.field == field
    assert context.streams == 0


async def test_partitions_that_are_new_are_followed_from_their_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GROWTH_LOOK_S", 0.0)
    fake = FakeBroker()
    fake.topic("t", partitions=1)
    context = make_context(fake)
    everything, only = Talk(), Talk()
    everything.say(start(credit=10))
    only.say(start(credit=10, partitions=[0]))
    calls_ = [asyncio.ensure_future(subscribe(context, talk)) for talk in (everything, only)]
    for talk in (everything, only):
        started = await talk.heard.get()
        assert [each.partition for each in started.started.positions] == [0]
    fake.topic("t", partitions=2)
    context.parts.topics.forget("t")
    await context.parts.writer.write("t", [(Row(None, b"new", (), 1_000), 1)], None)
    pushed = (await everything.heard.get()).records
    assert (pushed.partition, [each.value for each in pushed.records]) == (1, [b"new"])
    await context.parts.writer.write("t", [(Row(None, b"last", (), 1_000), 0)], None)
    pushed = (await only.heard.get()).records
    assert (pushed.partition, [each.value for each in pushed.records]) == (0, [b"last"])
    for talk in (everything, only):
        talk.say(None)
    await asyncio.gather(*calls_)


async def test_streams_end_when_the_process_does() -> None:
    fake = FakeBroker()
    fake.topic("t")
    context, talk = make_context(fake), Talk()
    running = asyncio.ensure_future(subscribe(context, talk))
    talk.say(start(credit=1))
    await talk.heard.get()
    context.stopping.set()
    with pytest.raises(Failure, match="stopping"):
        await running
    assert not context.parts.reader._reading
