"""Dead letters of this node: which queues have some to send, and how their topics are reached.

A queue with dying records has a carrier (`letter_carrier.py`), which ends when nothing is left.
What carriers and those who bring letters back need of other nodes and topics is here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from struct import Struct, error
from typing import Final, Protocol
from uuid import UUID

from penstock.broker.attempt_traces import AttemptTraces
from penstock.broker.cold_reads import ColdReads
from penstock.broker.forwarding import ReadAnswer
from penstock.broker.leaderships import Leaderships
from penstock.broker.letter_carrier import SEND_S_MAX, Carrier
from penstock.broker.letter_reading import READ_BYTES, decoded
from penstock.broker.letter_waking import by_leader
from penstock.broker.partitions import Partitions
from penstock.broker.producers import ProducerIdentity
from penstock.broker.queue_settings import SettingsOfQueues
from penstock.broker.share_coordinators import CALL_S_MAX, Peers
from penstock.broker.topics import NewTopic, Topic, Topics
from penstock.cluster.changes import BrokersChanged, Change
from penstock.cluster.coordinator import Cluster
from penstock.cluster.dead_letter_settings import (
    AUTO_CREATE_TOPICS_ENABLE,
    GROUP_ENABLE,
    TOPIC_NAME_PREFIX,
    fault_of_letters_topic,
)
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId
from penstock.observe.node_counters import NodeCounters
from penstock.queues import calls
from penstock.queues.dead_letters import decide_copying
from penstock.queues.layout import QueueKey, Reader, pack_list, pack_text
from penstock.queues.leading import LedQueue
from penstock.queues.letters import Copies, Plan, Sender
from penstock.records.record import Record
from penstock.replication.positions import FoundOffset
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# How long somebody who brings letters back waits for their copies.
COPY_S_MAX: Final = 10.0
# Queues of this node that build or send a batch at a time.
SENDING_MAX: Final = 32
LAST_SEQUENCE: Final = "letters.last_sequence"
TROUBLES: Final = "letters.troubles"
_ASKED: Final = Struct(">16siq")
_SAID: Final = Struct(">hi")


class Publisher(Protocol):
    """Whichever node leads the partition. After REQUEST_TIMED_OUT nobody knows whether the batch
    was appended; after every other refusal it was not."""

    async def publish(
        self, topic_id: TopicId, partition: int, batch: bytes, deadline: float, /
    ) -> int: ...

    async def read(
        self,
        topic_id: TopicId,
        partition: int,
        offset: int,
        /,
        *,
        bytes_max: int,
        wait_s: float,
        deadline: float,
    ) -> ReadAnswer: ...

    async def find(
        self, topic_id: TopicId, partition: int, timestamp: int, deadline: float, /
    ) -> FoundOffset: ...


class Identities(Protocol):
    async def identify(self, transactional_id: str | None, /) -> ProducerIdentity: ...


class DeadLetters:
    def __init__(
        self,
        *,
        cluster: Cluster,
        topics: Topics,
        partitions: Partitions,
        leaderships: Leaderships,
        publisher: Publisher,
        identities: Identities,
        peers: Peers,
        settings: SettingsOfQueues,
        cold_reads: ColdReads,
        clock: Clock,
        replica_of: Callable[[LedQueue], Replica],
        counters: NodeCounters | None = None,
        traces: AttemptTraces | None = None,
    ) -> None:
        self._counters = counters
        self._traces = traces
        self.cluster = cluster
        self._topics = topics
        self._partitions = partitions
        self._leaderships = leaderships
        self.publisher = publisher
        self.identities = identities
        self._peers = peers
        self.settings = settings
        self.cold_reads = cold_reads
        self.clock = clock
        self.replica_of = replica_of
        self.sending = asyncio.Semaphore(SENDING_MAX)
        self._carriers: dict[LedQueue, Carrier] = {}
        # Who waits for copies.
        self._copying: dict[LedQueue, asyncio.Future[Refused | None]] = {}
        cluster.on_change(self._heard)
        peers.serve(LAST_SEQUENCE, self._answer_last_sequence)
        peers.serve(TROUBLES, self._answer_troubles)

    def arrived(self, key: QueueKey, count: int) -> None:
        """So many letters of a queue are in the dead-letter topic."""
        topic = self.cluster.topic_by_id(key.topic_id)
        if self._counters is not None and topic is not None:
            self._counters.queues.of((key.group_id, topic.name)).dead += count

    @property
    def is_traced(self) -> bool:
        return self._traces is not None

    def trace(self, key: QueueKey, plan: Plan, sender: Sender, batch: bytes) -> None:
        """The batch is there; for the traces of its records."""
        topic = self.cluster.topic_by_id(key.topic_id)
        letters_topic = self.cluster.topic_by_id(sender.topic_id)
        if self._traces is not None and topic is not None and letters_topic is not None:
            self._traces.buried(key, topic.name, letters_topic.name, plan, batch)

    def carry(self, queue: LedQueue) -> None:
        """The queue has something to send; called often."""
        carrier = self._carriers.get(queue)
        if carrier is not None:
            carrier.notice()
            return
        carrier = self._carriers[queue] = Carrier(self, queue)
        carrier.task = asyncio.get_running_loop().create_task(carrier.run())
        carrier.task.add_done_callback(lambda task: self._ended(queue, task))

    def drop(self, queue: LedQueue) -> None:
        """It is closed. What was sent without an answer is sent again by its next leader."""
        carrier = self._carriers.pop(queue, None)
        if carrier is not None and carrier.task is not None:
            carrier.task.cancel()

    def trouble_of(self, queue: LedQueue) -> str:
        """Why its dying records are still here; empty if nothing is wrong."""
        carrier = self._carriers.get(queue)
        return "" if carrier is None else carrier.trouble

    async def troubles(self, keys: Collection[QueueKey]) -> dict[QueueKey, str]:
        """As the leaders of these queues say it, as far as they can be asked."""
        led = by_leader(self._leaderships, keys)
        asked = [self._ask_troubles(node, some) for node, some in led.items()]
        answers = await asyncio.gather(*asked)
        return {key: text for answer in answers for key, text in answer.items()}

    async def _ask_troubles(self, node: BrokerId, keys: list[QueueKey]) -> dict[QueueKey, str]:
        if node == self.cluster.broker_id:
            return dict(zip(keys, self._own_troubles(keys), strict=True))
        try:
            payload = calls.encode_keys(keys)
            answer = await self._peers.call(node, TROUBLES, payload, CALL_S_MAX)
            texts = calls.decoded(answer, _read_texts)
        except Refused as refused:
            logger.info("node %d says nothing about dead letters: %s", node, refused.detail)
            return {}
        return dict(zip(keys, texts, strict=False))

    async def _answer_troubles(self, _: BrokerId, payload: bytes) -> bytes:
        keys = calls.decoded(payload, calls.read_keys)
        return pack_list(map(pack_text, self._own_troubles(keys)))

    def _own_troubles(self, keys: Iterable[QueueKey]) -> list[str]:
        found = {queue.key: carrier.trouble for queue, carrier in self._carriers.items()}
        return [found.get(key, "") for key in keys]

    def _ended(self, queue: LedQueue, task: asyncio.Task[None]) -> None:
        carrier = self._carriers.get(queue)
        if carrier is not None and carrier.task is task:
            del self._carriers[queue]
        if task.cancelled():
            return
        if (bug := task.exception()) is not None:
            logger.error("sending the dead letters of %s failed", queue.key, exc_info=bug)
        elif queue.is_open and queue.machine.has_letters:
            self.carry(queue)

    def _heard(self, change: Change) -> None:
        """What was wrong may have been put right."""
        if not isinstance(change, BrokersChanged):
            for carrier in self._carriers.values():
                carrier.wake()

    # The topic

    async def target(self, key: QueueKey) -> Topic:
        """The dead-letter topic of the group as it is set now; made if it is missing."""
        name = self.settings.letters_topic_of(key.group_id)
        topic = self.cluster.topic(name)
        prefix = self.cluster.broker_setting(TOPIC_NAME_PREFIX)
        fault = fault_of_letters_topic(name, prefix, None if topic is None else topic.configs)
        if fault is not None:
            raise Refused(Reason.INVALID_CONFIG, f"{name}: {fault}")
        if topic is not None:
            return topic
        if not self.cluster.bool_setting(AUTO_CREATE_TOPICS_ENABLE):
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        outcome = (await self._topics.ensure([NewTopic(name, {GROUP_ENABLE: "true"})]))[name]
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def is_for_letters(self, topic_id: TopicId) -> bool:
        topic = self.cluster.topic_by_id(topic_id)
        return topic is not None and topic.configs.get(GROUP_ENABLE) == "true"

    async def find(self, topic_id: TopicId) -> Topic | None:
        """None only if the topic is gone: this node may not have heard of it yet."""
        topic = self.cluster.topic_by_id(topic_id)
        if topic is None:
            await self.cluster.catch_up()
            topic = self.cluster.topic_by_id(topic_id)
        return topic

    # Bringing back

    async def copy(
        self, queue: LedQueue, copies: Copies, copier: Sender, next_offset: int
    ) -> Refused | None:
        """Appends letters to the log of their queue again; gives why they could not be."""
        copied: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._copying[queue] = copied
        try:
            await queue.decide(lambda machine: decide_copying(machine, copies, copier, next_offset))
            async with asyncio.timeout(COPY_S_MAX):
                return await copied
        except TimeoutError:
            # It goes on: whoever asks again finds out.
            detail = f"copies for {queue.key} are on their way"
            raise Refused(Reason.REQUEST_TIMED_OUT, detail) from None
        finally:
            del self._copying[queue]

    def copied(self, queue: LedQueue, refused: Refused | None) -> None:
        """Its copies are in the log, or never will be."""
        waiting = self._copying.get(queue)
        if waiting is not None and not waiting.done():
            waiting.set_result(refused)

    async def letters_at(self, copies: Copies) -> list[Record | None]:
        """None for those that are gone."""
        found: list[Record | None] = []
        while len(found) < len(copies.offsets):
            found += await self._letters_from(copies, copies.offsets[len(found) :])
        return found

    async def _letters_from(
        self, copies: Copies, offsets: Sequence[int]
    ) -> Sequence[Record | None]:
        """Of the first of these offsets, as many as one read covers."""
        if await self.find(copies.topic_id) is None:
            return [None] * len(offsets)
        try:
            answer = await self.publisher.read(
                copies.topic_id,
                copies.partition,
                offsets[0],
                bytes_max=READ_BYTES,
                wait_s=0.0,
                deadline=self.clock.monotonic() + SEND_S_MAX,
            )
        except Refused as refused:
            if refused.reason is Reason.OFFSET_OUT_OF_RANGE:
                return [None]
            raise
        records: list[Record | None] = []
        await self.cold_reads.done(lambda: records.extend(decoded(answer.batches, offsets)))
        return records

    # What a dead-letter partition knows of a producer

    async def last_sequence(self, sender: Sender) -> tuple[int, int]:
        """Epoch and last sequence of what the partition has of it; -1 if there is nothing."""
        leader = self._leaderships.reachable_leader(sender.topic_id, sender.partition)
        if leader is None:
            detail = f"partition {sender.partition} of the dead-letter topic has no leader now"
            raise Refused(Reason.LEADER_NOT_AVAILABLE, detail)
        asked = (sender.topic_id, sender.partition, sender.producer_id)
        if leader.id == self.cluster.broker_id:
            return await self._own_last_sequence(*asked)
        payload = _ASKED.pack(sender.topic_id.bytes, *asked[1:])
        answer = await self._peers.call(leader.id, LAST_SEQUENCE, payload, CALL_S_MAX)
        try:
            epoch, sequence = _SAID.unpack(answer)
        except error:
            raise Refused(Reason.INVALID_REQUEST, "an answer is malformed") from None
        return epoch, sequence

    async def _own_last_sequence(
        self, topic_id: TopicId, partition: int, producer_id: int
    ) -> tuple[int, int]:
        replica = self._partitions.get_by_id(topic_id, partition)
        await replica.confirm()
        if not replica.is_settled:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, "the leader does not know its end yet")
        for known, producer in replica.producers():
            if known == producer_id:
                return producer.epoch, producer.batches[-1].last_sequence
        return -1, -1

    async def _answer_last_sequence(self, _: BrokerId, payload: bytes) -> bytes:
        try:
            name, partition, producer_id = _ASKED.unpack(payload)
        except error:
            raise Refused(Reason.INVALID_REQUEST, "a request is malformed") from None
        topic_id = TopicId(UUID(bytes=name))
        return _SAID.pack(*await self._own_last_sequence(topic_id, partition, producer_id))


def _read_texts(reader: Reader) -> list[str]:
    return [reader.text() for _ in range(reader.count())]
