"""A queue behind the channel: leases what a test sends, and notes what is said of the leases."""

import asyncio

from penstock.broker.doors import calls, queue_calls
from penstock.model.errors import Reason, Refused
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.unit.frontdoor.remote.fake_broker import FakeBroker


class FakeQueue:
    """Of the topic "t", which has one partition, and of any group."""

    def __init__(self, fake: FakeBroker) -> None:
        fake.topic("t")
        self._topic_id = fake.topics["t"].topic_id
        # What the group's setting says, and what becomes of every token.
        self.lease_ms = 60_000
        self.outcome = "ok"
        self.polls: list[queue_calls.PollQueue] = []
        # Each verb with the offsets of its tokens.
        self.settled: list[tuple[str, list[int]]] = []
        self._values: list[bytes] = []
        self._next = 0
        self._called_off: set[str] = set()
        self._changed = asyncio.Condition()
        fake.answers["PollQueue"] = self._poll
        fake.answers["CallOffPoll"] = self._call_off
        fake.answers["SettleLeases"] = self._settle

    async def send(self, *values: bytes) -> None:
        async with self._changed:
            self._values += values
            self._changed.notify_all()

    async def _poll(self, call: queue_calls.PollQueue) -> queue_calls.Polled:
        self.polls.append(call)

        def is_over() -> bool:
            return self._next < len(self._values) or call.poll_id in self._called_off

        async with self._changed:
            await self._changed.wait_for(is_over)
        if call.poll_id in self._called_off:
            raise Refused(Reason.REQUEST_TIMED_OUT, "The poll was called off.")
        first, end = self._next, min(self._next + call.records_max, len(self._values))
        self._next = end
        batches = b"".join(
            build_batch([Record(value=self._values[each], timestamp_ms=1)], base_offset=each)
            for each in range(first, end)
        )
        part = queue_calls.LeasedPart(
            partition=0, batches=batches, ranges=[(first, end - 1, 1)], member_id="door:x"
        )
        return queue_calls.Polled(
            topic_id=self._topic_id, lease_ms=call.lease_ms or self.lease_ms, parts=[part]
        )

    async def _call_off(self, call: queue_calls.CallOffPoll) -> calls.Done:
        async with self._changed:
            self._called_off.add(call.poll_id)
            self._changed.notify_all()
        return calls.Done()

    def _settle(self, call: queue_calls.SettleLeases) -> queue_calls.ClaimOutcomes:
        self.settled.append((call.verb, [each.offset for each in call.claims]))
        return queue_calls.ClaimOutcomes(
            outcomes=[self.outcome] * len(call.claims), lease_ms=call.lease_ms or self.lease_ms
        )
