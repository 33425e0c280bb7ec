"""The broker's own copy of what the schema registry holds, for topics that validate records.

It is read from `_schemas` when the first such record comes, and again whenever a record would be
refused: what was registered before the record was sent is known then. Records that pass wait for
nothing. So that deletions are heard of too, a copy that is used reads on in the background.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from penstock.broker.forwarding import Forwarding
from penstock.broker.offsets import Position
from penstock.broker.shared_reads import SharedRead
from penstock.broker.topics import Topics
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId
from penstock.model.limits import KIB
from penstock.records.batch import decode_records, parse_header
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from penstock.registry.records import TOPIC, UnknownRecord, decode
from penstock.registry.state import State

# Less than another node waits for an answer (forwarding.ATTEMPT_S_MAX), so that it hears why.
CATCH_UP_S_MAX: Final = 2.0
# After a read that failed, others are not made to wait for the next one at once.
FAILED_S: Final = 0.5
# A copy that is older than this reads on when it is used, and nobody waits for it.
FRESH_S: Final = 1.0
READ_BYTES_MAX: Final = 256 * KIB
# Records that are applied between two looks at what else the loop has to do: about a millisecond.
APPLIED_MAX: Final = 20

logger = logging.getLogger(__name__)


class KnownSchemas:
    def __init__(self, *, topics: Topics, forwarding: Forwarding, clock: Clock) -> None:
        self._topics = topics
        self._forwarding = forwarding
        self._clock = clock
        self.state = State()
        # Grows with every change, so that what was concluded from the copy can be forgotten.
        self.version = 0
        self._topic_id: TopicId | None = None
        self._reading = SharedRead(self._read_to_end)
        # By the monotonic clock: when the last read ended well, and when one failed, and why.
        self._read_at = -FRESH_S
        self._failure: tuple[float, Refused] | None = None

    async def catch_up(self) -> None:
        """Returns when all that was registered before this call is known; raises Refused with
        NOT_ENOUGH_REPLICAS, which every client takes as: not written, try again."""
        if self._failure is not None:
            failed_at, refused = self._failure
            if self._clock.monotonic() - failed_at < FAILED_S:
                raise refused
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await self._reading.wait()
        except TimeoutError:
            raise self._failed("it takes too long") from None
        except Refused as refused:
            raise self._failed(refused.detail) from refused
        self._failure = None

    def read_on(self) -> None:
        """Starts a read for those who come later, if the copy is not fresh."""
        now = self._clock.monotonic()
        if now - self._read_at >= FRESH_S:
            self._read_at = now
            task = asyncio.get_running_loop().create_task(self._reading.wait())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _failed(self, why: str) -> Refused:
        detail = f"the schemas of {TOPIC} can't be read now, so nothing was written: {why}"
        refused = Refused(Reason.NOT_ENOUGH_REPLICAS, detail)
        self._failure = self._clock.monotonic(), refused
        return refused

    # Reading

    async def _read_to_end(self) -> None:
        topic = self._topics.find(TOPIC)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            # A topic that was deleted took all schemas along.
            self._topic_id = topic_id
            self._begin_at(0)
        if topic is not None:
            await self._follow(topic.topic_id)
        self._read_at = self._clock.monotonic()

    def _begin_at(self, offset: int) -> None:
        self.state = State()
        self.state.next_offset = offset
        self.version += 1

    async def _follow(self, topic_id: TopicId) -> None:
        deadline = self._clock.monotonic() + CATCH_UP_S_MAX
        if not self.state.next_offset:
            await self._begin_at_start(topic_id, deadline)
        while True:
            try:
                answer = await self._forwarding.read(
                    topic_id,
                    0,
                    self.state.next_offset,
                    bytes_max=READ_BYTES_MAX,
                    wait_s=0.0,
                    deadline=deadline,
                )
            except Refused as refused:
                if refused.reason is not Reason.OFFSET_OUT_OF_RANGE:
                    raise
                # The topic was cut behind the copy's back: all that is left of it counts.
                await self._begin_at_start(topic_id, deadline)
                continue
            await self._apply(answer.batches)
            if self.state.next_offset >= answer.high_watermark:
                return

    async def _begin_at_start(self, topic_id: TopicId, deadline: float) -> None:
        found = await self._forwarding.find(topic_id, 0, Position.EARLIEST, deadline)
        self._begin_at(max(0, found.offset))

    async def _apply(self, batches: bytes) -> None:
        state = self.state
        for count, (record, next_offset) in enumerate(_records(batches), 1):
            if record is not None and record.offset >= state.next_offset:
                self._take(record)
            state.next_offset = max(state.next_offset, next_offset)
            if count % APPLIED_MAX == 0:
                await asyncio.sleep(0)

    def _take(self, record: Record) -> None:
        self.version += 1
        try:
            self.state.apply(decode(record.key, record.value), record.offset)
        except UnknownRecord as unknown:
            logger.warning(
                "the record at offset %d of %s is skipped: %s", record.offset, TOPIC, unknown
            )


def _records(batches: bytes) -> Iterator[tuple[Record | None, int]]:
    """Each record, and where the next one is expected; None for a batch that has none."""
    view = memoryview(batches)
    while len(view):
        header = parse_header(view)
        if header.size > len(view):
            return
        try:
            if not header.is_control:
                for record in decode_records(view):
                    yield record, record.offset + 1
        except CorruptBatch as bad:
            logger.warning("a batch of %s at %d is skipped: %s", TOPIC, header.base_offset, bad)
        yield None, header.next_offset
        view = view[header.size :]
