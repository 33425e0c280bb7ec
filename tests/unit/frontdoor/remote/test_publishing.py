"""Proves that requests share batches, that each gets its own outcome, and that none is doubled."""

import asyncio

import pytest

from penstock.broker.doors import calls
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.publishing import (
    GATHER_TURNS_MAX,
    PartOutcome,
    Publisher,
    keyed_identity,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, KEYED_PRODUCERS_FROM
from penstock.records.batch import parse_header
from penstock.records.rows import Row
from tests.unit.frontdoor.remote.fake_broker import FakeBroker

LOST = Refused(Reason.REQUEST_TIMED_OUT, "lost")


def row(text: str) -> Row:
    return Row(None, text.encode(), (), 5)


class Rig:
    def __init__(self, **topic: int) -> None:
        self.fake = FakeBroker()
        self.fake.topic("t", **topic)
        self.publisher = Publisher(Broker(self.fake))

    async def submit(self, *texts: str, key: str | None = None) -> list[PartOutcome]:
        rows = [row(text) for text in texts]
        return await self.publisher.submit(self.fake.topics["t"], 0, rows, key)()

    async def publish(self, *texts: str, key: str | None = None) -> list[int]:
        """The offset of each; raises if one was refused."""
        offsets: list[int] = []
        for records, first in await self.submit(*texts, key=key):
            if isinstance(first, Refused):
                raise first
            offsets.extend(range(first, first + records))
        return offsets

    def values(self, partition: int = 0) -> list[str]:
        return [(record.value or b"").decode() for record in self.fake.records("t", partition)]

    @property
    def batches(self) -> list[int]:
        """How many records each had."""
        sent = [each for each in self.fake.asked if isinstance(each, calls.Publish)]
        return [parse_header(each.batch).record_count for each in sent]


async def test_what_arrives_while_a_batch_is_under_way_shares_the_next() -> None:
    rig = Rig()
    rig.fake.gate.clear()
    first = asyncio.ensure_future(rig.publish("a"))
    while not rig.batches:
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(rig.publish(f"b{each}", f"c{each}")) for each in range(20)]
    for _ in range(5):
        await asyncio.sleep(0)
    rig.fake.gate.set()
    assert await first == [0]
    assert await asyncio.gather(*others) == [[1 + 2 * n, 2 + 2 * n] for n in range(20)]
    assert rig.batches == [1, 40]
    assert rig.values()[:5] == ["a", "b0", "c0", "b1", "c1"]
    assert rig.fake.producers == 1


async def test_requests_that_are_read_one_by_one_share_a_batch() -> None:
    rig = Rig()
    requests = []
    for number in range(GATHER_TURNS_MAX):
        requests.append(asyncio.ensure_future(rig.publish(str(number))))
        await asyncio.sleep(0)
    assert await asyncio.gather(*requests) == [[number] for number in range(GATHER_TURNS_MAX)]
    assert rig.batches == [GATHER_TURNS_MAX]


async def test_a_batch_leaves_while_requests_keep_coming() -> None:
    rig = Rig()
    requests = []
    while not rig.batches:
        requests.append(asyncio.ensure_future(rig.publish("x")))
        await asyncio.sleep(0)
        assert len(requests) < 5 * GATHER_TURNS_MAX
    await asyncio.gather(*requests)


async def test_one_that_is_too_large_does_not_cost_the_others() -> None:
    rig = Rig(message_bytes_max=500)
    rig.fake.gate.clear()
    first = asyncio.ensure_future(rig.publish("a"))
    await asyncio.sleep(0)
    sent = [rig.publish("b"), rig.publish("x" * 600), rig.publish("c")]
    tasks = [asyncio.ensure_future(each) for each in sent]
    await asyncio.sleep(0)
    rig.fake.gate.set()
    await first
    small, large, other = await asyncio.gather(*tasks, return_exceptions=True)
    assert (small, other) == ([1], [2])
    assert isinstance(large, Refused)
    assert large.reason is Reason.MESSAGE_TOO_LARGE
    assert rig.values() == ["a", "b", "c"]


async def test_a_record_that_the_topic_refuses_is_found_among_others() -> None:
    rig = Rig()
    rig.fake.gate.clear()
    first = asyncio.ensure_future(rig.publish("a"))
    while not rig.batches:
        await asyncio.sleep(0)
    tasks = [asyncio.ensure_future(rig.publish(text)) for text in ("b", "bad", "c")]
    await asyncio.sleep(0)
    bad = Refused(Reason.INVALID_RECORD, "no key")
    # The first alone, then all three together, then each alone.
    rig.fake.refusals = [None, bad, None, bad, None]
    rig.fake.gate.set()
    await first
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcomes[0], outcomes[2]] == [[1], [2]]
    assert isinstance(outcomes[1], Refused)
    assert rig.values() == ["a", "b", "c"]


async def test_after_an_unknown_outcome_the_lane_goes_on_as_another_producer() -> None:
    rig = Rig()
    await rig.publish("a")
    rig.fake.refusals = [LOST]
    with pytest.raises(Refused) as caught:
        await rig.publish("b")
    assert caught.value.reason is Reason.REQUEST_TIMED_OUT
    assert await rig.publish("c") == [1]
    assert rig.fake.producers == 2


async def test_so_it_does_after_a_bug_of_the_broker() -> None:
    rig = Rig()
    await rig.publish("a")
    rig.fake.refusals = [Refused(Reason.UNKNOWN_SERVER_ERROR, "a bug")]
    with pytest.raises(Refused, match="a bug"):
        await rig.publish("b")
    assert await rig.publish("c") == [1]
    assert rig.fake.producers == 2


async def test_a_sure_refusal_keeps_the_producer_and_its_sequence() -> None:
    rig = Rig()
    await rig.publish("a")
    rig.fake.refusals = [Refused(Reason.NOT_ENOUGH_REPLICAS, "too few")]
    with pytest.raises(Refused):
        await rig.publish("b")
    assert await rig.publish("c") == [1]
    assert rig.fake.producers == 1


async def test_a_producer_that_a_partition_does_not_know_any_more_is_replaced() -> None:
    rig = Rig()
    await rig.publish("a")
    rig.fake.refusals = [Refused(Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, "who?")]
    assert await rig.publish("b") == [1]
    assert rig.fake.producers == 2
    assert rig.values() == ["a", "b"]


async def test_many_records_take_several_batches_in_order() -> None:
    rig = Rig(message_bytes_max=1000)
    texts = [f"{number:050}" for number in range(100)]
    assert await rig.publish(*texts) == list(range(100))
    assert rig.values() == texts
    assert len(rig.batches) > 5


SIX = [f"{number:0300}" for number in range(6)]
# So that two of them fit into a batch.
SMALL = 1000


def reasons(outcomes: list[PartOutcome]) -> list[int | Reason]:
    return [each if isinstance(each, int) else each.reason for _, each in outcomes]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_follows_a_refused_batch_of_a_request_is_not_tried(key: str | None) -> None:
    rig = Rig(message_bytes_max=SMALL)
    too_few = Refused(Reason.NOT_ENOUGH_REPLICAS, "too few")
    rig.fake.refusals = [None, too_few]
    outcomes = await rig.submit(*SIX, key=key)
    assert [each.records for each in outcomes] == [2, 2, 2]
    assert reasons(outcomes) == [0, too_few.reason, too_few.reason]
    assert len(rig.batches) == 2
    # Other requests are not concerned.
    assert await rig.publish("a") == [2]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_follows_an_unknown_outcome_was_surely_not_written(key: str | None) -> None:
    rig = Rig(message_bytes_max=SMALL)
    rig.fake.refusals = [LOST]
    outcomes = await rig.submit(*SIX, key=key)
    behind = Reason.LEADER_NOT_AVAILABLE
    assert reasons(outcomes) == [Reason.REQUEST_TIMED_OUT, behind, behind]
    assert not rig.values()


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_follows_a_bad_record_is_written(key: str | None) -> None:
    rig = Rig(message_bytes_max=SMALL)
    outcomes = await rig.submit(*SIX[:2], "x" * 2000, *SIX[2:4], key=key)
    assert reasons(outcomes) == [0, Reason.MESSAGE_TOO_LARGE, 2]
    assert rig.values() == SIX[:4]


async def test_what_nobody_waits_for_is_not_sent() -> None:
    rig = Rig()
    rig.fake.gate.clear()
    first = asyncio.ensure_future(rig.publish("a"))
    await asyncio.sleep(0)
    gone = asyncio.ensure_future(rig.publish("gone"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    rig.fake.gate.set()
    await first
    assert await rig.publish("b") == [1]
    assert rig.values() == ["a", "b"]


async def test_too_much_that_waits_is_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.frontdoor.remote.publishing.LANE_BYTES_MAX", 100)
    rig = Rig()
    rig.fake.gate.clear()
    waiting = [asyncio.ensure_future(rig.publish(text)) for text in ("a", "b")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.append(asyncio.ensure_future(rig.publish("c")))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as caught:
        await rig.publish("x" * 80)
    assert caught.value.reason is Reason.THROTTLED
    rig.fake.gate.set()
    await asyncio.gather(*waiting)


async def test_a_repeated_idempotency_key_writes_nothing_twice() -> None:
    rig = Rig(message_bytes_max=1000)
    texts = [f"{number:050}" for number in range(60)]
    first = await rig.publish(*texts, key="order-1")
    assert await rig.publish(*texts, key="order-1") == first
    assert rig.values() == texts
    assert await rig.publish("other", key="order-2") == [60]


async def test_an_idempotency_key_for_other_records_is_refused() -> None:
    rig = Rig()
    await rig.publish("a", key="k")
    with pytest.raises(Refused) as caught:
        await rig.publish("a", "b", key="k")
    assert "'k' was used for other records" in caught.value.detail


@pytest.mark.parametrize("more", [-2, -1, 1, 2, 20])
async def test_a_key_is_refused_with_more_or_fewer_records_also_of_many_batches(more: int) -> None:
    rig = Rig(message_bytes_max=SMALL)
    texts = [f"{number:0300}" for number in range(40)]
    assert reasons(await rig.submit(*texts[:6], key="k")) == [0, 2, 4]
    # The first batches are the same as before.
    outcomes = await rig.submit(*texts[: 6 + more], key="k")
    assert set(reasons(outcomes)) == {Reason.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert rig.values() == texts[:6]


def test_keys_have_producer_ids_of_their_own() -> None:
    topic_id = Rig().fake.topics["t"].topic_id
    found = {
        keyed_identity(topic_id, part, 0, f"k{each}", 0) for part in (0, 1) for each in range(99)
    }
    assert len(found) == 198
    # Below those of copies: polls of queues skip the batches of those.
    assert all(KEYED_PRODUCERS_FROM <= who < COPIERS_FROM for who, _ in found)
    assert all(0 <= sequence < 2**31 for _, sequence in found)
