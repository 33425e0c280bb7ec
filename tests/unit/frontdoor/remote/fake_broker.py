"""A broker behind the channel that keeps its topics in memory, and fails when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid5

from penstock.broker.doors import calls
from penstock.model.errors import Reason, Refused
from penstock.records.batch import decode_records, parse_header, stamp
from penstock.records.record import Record

_SPACE = UUID(int=5)


class FakeBroker:
    def __init__(self) -> None:
        self.topics: dict[str, calls.TopicInfo] = {}
        # Whole batches, with their offsets, by topic and partition.
        self.logs: dict[tuple[UUID, int], list[bytes]] = {}
        # Where logs begin that were trimmed.
        self.starts: dict[tuple[UUID, int], int] = {}
        self.asked: list[calls.Call[Any]] = []
        # What happens to the next publishes: None lets one pass.
        self.refusals: list[Refused | None] = []
        self.producers = 0
        self.seen: dict[tuple[UUID, int, int], tuple[int, int, int]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Event()
        # For any other call, by its name.
        self.answers: dict[str, Callable[[Any], calls.Answer | Awaitable[calls.Answer]]] = {}

    def topic(self, name: str, partitions: int = 1, message_bytes_max: int = 1 << 20) -> None:
        self.topics[name] = calls.TopicInfo(
            topic_id=uuid5(_SPACE, name),
            name=name,
            partitions=partitions,
            message_bytes_max=message_bytes_max,
        )

    def records(self, name: str, partition: int = 0) -> list[Record]:
        log = self.logs.get((self.topics[name].topic_id, partition), [])
        return [record for batch in log for record in decode_records(batch)]

    # The channel

    async def call(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        call = calls.decode_call(method, payload)
        self.asked.append(call)
        answer = await self._answer(call)
        return calls.encode(answer)

    async def _answer(self, call: calls.Call[Any]) -> calls.Answer:
        if isinstance(call, calls.FindTopic):
            if call.name not in self.topics:
                raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {call.name}.")
            return self.topics[call.name]
        if isinstance(call, calls.Identify):
            self.producers += 1
            return calls.ProducerIdentity(producer_id=self.producers, epoch=0)
        if isinstance(call, calls.Publish):
            return await self._publish(call)
        if isinstance(call, calls.Read):
            return await self._read(call)
        if isinstance(call, calls.FindOffset):
            return self._find(call)
        answer = self.answers[type(call).__name__](call)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _publish(self, call: calls.Publish) -> calls.Published:
        await self.gate.wait()
        refused = self.refusals.pop(0) if self.refusals else None
        if refused is not None:
            raise refused
        header = parse_header(call.batch)
        info = next(each for each in self.topics.values() if each.topic_id == call.topic_id)
        if len(call.batch) > info.message_bytes_max:
            raise Refused(Reason.MESSAGE_TOO_LARGE, "the batch is too large")
        producer = call.topic_id, call.partition, header.producer_id
        known = self.seen.get(producer)
        if known is not None and known[:2] == (header.base_sequence, header.record_count):
            return calls.Published(base_offset=known[2])
        if known is not None and known[0] + known[1] != header.base_sequence:
            raise Refused(Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order")
        log = self.logs.setdefault((call.topic_id, call.partition), [])
        base = parse_header(log[-1]).next_offset if log else 0
        batch = bytearray(call.batch)
        stamp(batch, 0, base_offset=base, term=1)
        log.append(bytes(batch))
        self.seen[producer] = (header.base_sequence, header.record_count, base)
        self.changed.set()
        return calls.Published(base_offset=base)

    def _end(self, topic_id: UUID, partition: int) -> int:
        log = self.logs.get((topic_id, partition), [])
        return parse_header(log[-1]).next_offset if log else 0

    async def _read(self, call: calls.Read) -> calls.Batches:
        end = self._end(call.topic_id, call.partition)
        start = self.starts.get((call.topic_id, call.partition), 0)
        if not start <= call.offset <= end:
            raise Refused(Reason.OFFSET_OUT_OF_RANGE, "outside")
        while call.wait_s and call.offset >= self._end(call.topic_id, call.partition):
            self.changed.clear()
            await self.changed.wait()
        log = self.logs.get((call.topic_id, call.partition), [])
        found = [batch for batch in log if parse_header(batch).next_offset > call.offset]
        return calls.Batches(
            batches=b"".join(found),
            log_start_offset=start,
            high_watermark=self._end(call.topic_id, call.partition),
        )

    def _find(self, call: calls.FindOffset) -> calls.FoundOffset:
        if call.timestamp_ms == -2:
            start = self.starts.get((call.topic_id, call.partition), 0)
            return calls.FoundOffset(offset=start, timestamp_ms=-1)
        if call.timestamp_ms >= 0:
            log = self.logs.get((call.topic_id, call.partition), [])
            for record in (record for batch in log for record in decode_records(batch)):
                if record.timestamp_ms >= call.timestamp_ms:
                    return calls.FoundOffset(offset=record.offset, timestamp_ms=record.timestamp_ms)
            return calls.FoundOffset(offset=-1, timestamp_ms=-1)
        return calls.FoundOffset(offset=self._end(call.topic_id, call.partition), timestamp_ms=-1)
