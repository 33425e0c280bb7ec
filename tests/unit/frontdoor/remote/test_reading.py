"""Proves that an answer is bounded by what its records take when they are decompressed."""

from uuid import UUID

from penstock.broker.doors import queue_calls
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.queueing import Queueing
from penstock.frontdoor.remote.reading import EXPANSION_MAX, Reader
from penstock.model.lease_tokens import read_token
from penstock.model.limits import KIB, MIB
from penstock.records.batch import build_row_batch
from penstock.records.compression import Codec
from penstock.records.rows import Row
from tests.unit.frontdoor.remote.fake_broker import FakeBroker
from tests.waiting import until

BYTES_MAX = 64 * KIB
VALUE = b"x" * 32 * KIB
# How many of these values an answer holds.
FITTING = EXPANSION_MAX * BYTES_MAX // len(VALUE)
PER_BATCH = FITTING + 4


def batch(base_offset: int, *values: bytes) -> bytes:
    """A few hundred bytes that become many."""
    rows = [Row(None, value, (), 5) for value in values]
    return build_row_batch(rows, base_offset=base_offset, codec=Codec.ZSTD)


class Rig:
    def __init__(self, *batches: bytes) -> None:
        self.fake = FakeBroker()
        self.fake.topic("t")
        self.topic = self.fake.topics["t"]
        self.fake.logs[self.topic.topic_id, 0] = list(batches)
        self.batches = b"".join(batches)
        # Settled tokens, as verb and offset.
        self.settled: list[tuple[str, int]] = []
        self.fake.answers["PollQueue"] = self._poll
        self.fake.answers["SettleLeases"] = self._settle
        self.queueing = Queueing(Broker(self.fake))

    async def read(self, offset: int) -> tuple[list[int], int]:
        chunk = await Reader(Broker(self.fake)).read(
            self.topic, 0, offset, records_max=1000, bytes_max=BYTES_MAX
        )
        return [record.offset for record in chunk.records], chunk.next_offset

    def _poll(self, call: queue_calls.PollQueue) -> queue_calls.Polled:
        """Two partitions with the same records, all of them leased."""
        end = self.fake._end(self.topic.topic_id, 0)
        parts = [
            queue_calls.LeasedPart(
                partition=partition, member_id="m", batches=self.batches, ranges=[(0, end - 1, 1)]
            )
            for partition in (0, 1)
        ]
        return queue_calls.Polled(topic_id=UUID(int=9), lease_ms=1000, parts=parts)

    def _settle(self, call: queue_calls.SettleLeases) -> queue_calls.ClaimOutcomes:
        self.settled += ((call.verb, claim.offset) for claim in call.claims)
        return queue_calls.ClaimOutcomes(outcomes=["ok"] * len(call.claims))


async def test_a_read_ends_early_where_records_are_larger_than_their_batches() -> None:
    values = [VALUE] * PER_BATCH
    rig = Rig(batch(0, *values), batch(PER_BATCH, *values))
    assert len(rig.batches) < BYTES_MAX
    assert await rig.read(0) == (list(range(FITTING)), FITTING)
    # It goes on inside the batch, and through the next one.
    assert await rig.read(FITTING) == (list(range(FITTING, 2 * FITTING)), 2 * FITTING)
    assert await rig.read(2 * PER_BATCH - 1) == ([2 * PER_BATCH - 1], 2 * PER_BATCH)


async def test_a_record_that_is_larger_comes_alone() -> None:
    rig = Rig(batch(0, b"x" * 2 * EXPANSION_MAX * BYTES_MAX, VALUE))
    assert await rig.read(0) == ([0], 1)
    assert await rig.read(1) == ([1], 2)


async def test_what_does_not_fit_into_a_poll_is_given_back() -> None:
    rig = Rig(batch(0, *[VALUE] * PER_BATCH))
    polled = await rig.queueing.poll("t", "g", records_max=1000, bytes_max=BYTES_MAX)
    places = [(message.partition, message.record.offset) for message in polled.messages]
    assert places == [(0, offset) for offset in range(FITTING)]
    assert all(read_token(message.token) for message in polled.messages)
    await until(lambda: len(rig.settled) == 2 * PER_BATCH - FITTING)
    assert {verb for verb, _ in rig.settled} == {"undo"}
    assert rig.settled[:4] == [("undo", offset) for offset in range(FITTING, PER_BATCH)]


async def test_a_batch_that_the_broker_takes_is_not_damaged_for_doors() -> None:
    """There is one bound of what a batch may decompress to."""
    rig = Rig(batch(0, b"x" * 65 * MIB))
    polled = await rig.queueing.poll("t", "g", records_max=1, bytes_max=BYTES_MAX)
    assert [len(message.record.value or b"") for message in polled.messages] == [65 * MIB]
    assert await rig.read(0) == ([0], 1)
