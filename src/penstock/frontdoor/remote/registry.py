"""The schema registry of this process: a copy of `_schemas` in memory, and the way to change it.

The topic is read when the registry is first used, and its end before each answer that could have
changed. A change is decided on the copy and written on the condition that nobody else has written
since (decision 46). If somebody has, the copy catches up and the change is decided again. So all
nodes may write, and what they write follows from the records before it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar
from uuid import UUID

from penstock.broker.doors.calls import (
    CreateTopic,
    DescribeCluster,
    Identify,
    ProducerIdentity,
    Publish,
    TopicInfo,
)
from penstock.broker.shared_reads import SharedRead
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.reading import EARLIEST, Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.model.errors import Reason, Refused
from penstock.model.limits import KIB
from penstock.records.batch import build_row_batch
from penstock.records.rows import Row
from penstock.registry.decisions import Change, Deciding
from penstock.registry.errors import STORE_FAILED, TIMED_OUT, RegistryError
from penstock.registry.records import TOPIC, Entry, UnknownRecord, decode, encode
from penstock.registry.state import State

# One partition, since its order decides; compacted, since only the last word of each key counts.
TOPIC_SETTINGS: Final = {"cleanup.policy": "compact"}
REPLICATION_FACTOR_MAX: Final = 3
# How long a change may take, with all its attempts.
CHANGE_S_MAX: Final = 30.0
# How long it waits for the record of another node that was faster; it may never be committed.
NEWS_S_MAX: Final = 0.5
# Records that are read at a time; applying them must not keep the loop for long.
READ_RECORDS_MAX: Final = 5_000
READ_BYTES_MAX: Final = 256 * KIB
# Schemas that are parsed or compared at a time, each in a thread: they share one interpreter.
WORKING_MAX: Final = 2

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Registry:
    def __init__(
        self, broker: Broker, topics: Topics, reader: Reader, now_ms: Callable[[], int]
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._reader = reader
        self._now_ms = now_ms
        self.state = State()
        self._topic_id: UUID | None = None
        self._working = asyncio.Semaphore(WORKING_MAX)
        # Changes of this process follow each other: they would only be in each other's way.
        self._changing = asyncio.Lock()
        self._identity: ProducerIdentity | None = None
        self._sequence = 0
        self._reading = SharedRead(self._read_to_end)

    # Asking

    async def ask(self, answer: Callable[[State], T]) -> T:
        """An answer from all that was registered before this was asked, on any node."""
        await self.refresh()
        return answer(self.state)

    async def work_out(self, question: Callable[[State], Deciding[T]], *, fresh: bool = True) -> T:
        """As `ask`, for an answer that needs schemas to be parsed or compared."""
        if fresh:
            await self.refresh()
        return await self._driven(question(self.state))

    async def refresh(self) -> None:
        """Returns when all that was written before this call is in the copy."""
        await self._reading.wait()

    async def _read_to_end(self) -> None:
        topic = await self._topic(may_create=False)
        if topic is None:
            return
        try:
            await self._follow(topic)
        except Refused as refused:
            if refused.reason is Reason.OFFSET_OUT_OF_RANGE:
                # The topic was cut behind the copy's back: all that is left of it counts.
                self.state = State()
                self.state.next_offset = await self._reader.find(topic, 0, EARLIEST)
                await self._follow(topic)
                return
            # Perhaps it is another topic of that name now: the next request finds out.
            self._topics.forget(TOPIC)
            raise

    async def _follow(self, topic: TopicInfo) -> None:
        state = self.state
        if not state.next_offset:
            state.next_offset = await self._reader.find(topic, 0, EARLIEST)
        while True:
            chunk = await self._reader.read(
                topic,
                0,
                state.next_offset,
                records_max=READ_RECORDS_MAX,
                bytes_max=READ_BYTES_MAX,
            )
            for record in chunk.records:
                self._take(record.key, record.value, record.offset)
            state.next_offset = chunk.next_offset
            if chunk.next_offset >= chunk.high_watermark:
                return

    def _take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        try:
            self.state.apply(decode(key, value), offset)
        except UnknownRecord as unknown:
            logger.warning("the record at offset %d of %s is skipped: %s", offset, TOPIC, unknown)

    async def _topic(self, *, may_create: bool) -> TopicInfo | None:
        try:
            found = await self._topics.find(TOPIC)
        except Refused as refused:
            if refused.reason is not Reason.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not may_create:
                self._begin_again(None)
                return None
            await self._create()
            self._topics.forget(TOPIC)
            found = await self._topics.find(TOPIC)
        if found.partitions != 1:
            detail = f"The topic {TOPIC} has {found.partitions} partitions, but must have one."
            raise RegistryError(STORE_FAILED, detail)
        self._begin_again(found.topic_id)
        return found

    def _begin_again(self, topic_id: UUID | None) -> None:
        """A topic that was deleted took all schemas along."""
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self.state = State()

    async def _create(self) -> None:
        nodes = (await self._broker.ask(DescribeCluster())).nodes
        factor = min(REPLICATION_FACTOR_MAX, sum(node.is_alive for node in nodes))
        call = CreateTopic(
            name=TOPIC, partitions=1, replication_factor=factor, settings=TOPIC_SETTINGS
        )
        try:
            await self._broker.ask(call)
        except Refused as refused:
            if refused.reason is not Reason.TOPIC_ALREADY_EXISTS:
                raise

    # Changing

    async def change(self, decide: Callable[[State], Change | Deciding[Change]]) -> Any:
        """Decides and writes, and again if somebody else has written meanwhile.

        Raises RegistryError: with TIMED_OUT if it is not known whether it was written.
        """
        try:
            async with asyncio.timeout(CHANGE_S_MAX), self._changing:
                return await self._changed(decide)
        except TimeoutError:
            message = "The change took too long; it is not known whether it was written."
            raise RegistryError(TIMED_OUT, message) from None

    async def _changed(self, decide: Callable[[State], Change | Deciding[Change]]) -> Any:
        topic = await self._topic(may_create=True)
        assert topic is not None
        while True:
            await self.refresh()
            state = self.state
            expected = state.next_offset
            decided = decide(state)
            change = decided if isinstance(decided, Change) else await self._driven(decided)
            if not change.entries:
                return change.answer
            if await self._write(topic, change.entries, expected):
                self._note(state, change.entries, expected)
                return change.answer
            # Who was faster is not committed yet, perhaps.
            await self._reader.read(topic, 0, expected, records_max=1, wait_s=NEWS_S_MAX)

    async def _driven(self, deciding: Deciding[T]) -> T:
        """Does the work that a decision asks for in a thread, and returns what it decides."""
        result: Any = None
        while True:
            try:
                work = deciding.send(result)
            except StopIteration as done:
                decided: T = done.value
                return decided
            async with self._working:
                result = await asyncio.to_thread(work)

    async def _write(self, topic: TopicInfo, entries: list[Entry], expected: int) -> bool:
        """Whether the records are written; not if their place is taken."""
        if self._identity is None:
            self._identity, self._sequence = await self._broker.ask(Identify()), 0
        now_ms = self._now_ms()
        rows = [Row(*encode(entry), (), now_ms) for entry in entries]
        batch = build_row_batch(
            rows,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._sequence,
        )
        call = Publish(
            topic_id=topic.topic_id,
            partition=0,
            batch=batch,
            wait_s=CHANGE_S_MAX,
            expected=expected,
        )
        try:
            await self._broker.ask(call, CHANGE_S_MAX)
        except Refused as refused:
            if refused.reason is Reason.OFFSET_NOT_EXPECTED:
                return False
            self._identity = None
            raise
        except BaseException:
            self._identity = None
            raise
        self._sequence += len(rows)
        return True

    def _note(self, state: State, entries: list[Entry], offset: int) -> None:
        """What was written need not be read, unless somebody read it meanwhile."""
        if state is self.state and state.next_offset == offset:
            for number, entry in enumerate(entries):
                state.apply(entry, offset + number)
