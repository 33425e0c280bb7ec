"""All batches of a producer that are not acknowledged, and what each answer means for them."""

import threading
from collections.abc import Iterable

from penstock.client.connection import LOGGER
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import Malformed, UnknownTopic, name_of, place
from penstock.client.wire.partition_queue import Outgoing, PartitionQueue
from penstock.client.wire.produce_call import answers_by_partition, identify
from penstock.client.wire.stamping import NOBODY, Identity
from penstock.client.wire.topics import ABSENCE_S_MAX
from penstock.client.wire.verdicts import Verdict, refusal, verdict
from penstock.model.endpoint import Endpoint
from penstock.model.ids import TopicPartition
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.produce import PartitionProduceResponse, ProduceResponse

_ABSENT_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Deliveries:
    """Only the sending thread uses it; raises ClientError when a batch can't be delivered."""

    def __init__(
        self, cluster_map: ClusterMap, *, is_idempotent: bool, stop: threading.Event
    ) -> None:
        self._map = cluster_map
        self._stop = stop
        self._identity: Identity | None = None if is_idempotent else NOBODY
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._settled: list[Outgoing] = []

    def add(self, batch: Outgoing) -> None:
        self._queue_of(batch.partition).add(batch)

    def ready_by_leader(self, now: float) -> dict[Endpoint, list[PartitionQueue]]:
        """Partitions of which something may be sent now, by the brokers that lead them."""
        ready: dict[Endpoint, list[PartitionQueue]] = {}
        for queue in self._queues.values():
            if queue.next_to_send(now) is None:
                continue
            endpoint = self._leader_of(queue, now)
            if endpoint is not None:
                ready.setdefault(endpoint, []).append(queue)
        return ready

    def held_until(self, now: float) -> list[float]:
        """When something may be sent that waits for nothing but time."""
        return [queue.not_before for queue in self._queues.values() if queue.is_held(now)]

    def unreachable(self, queues: Iterable[PartitionQueue], reason: str, now: float) -> None:
        """Their leader accepts no connection."""
        for queue in queues:
            self._map.forget_leader(queue.partition)
            queue.hold(reason, now, is_silent=True)

    def lost(self, batches: Iterable[Outgoing], reason: str, now: float) -> None:
        """Whether they were written is not known: they are sent again."""
        queues = {batch.partition: self._queues[batch.partition] for batch in batches}
        for batch in batches:
            queues[batch.partition].failed(batch)
        self.unreachable(queues.values(), reason, now)

    def acknowledged(self, batch: Outgoing) -> None:
        self._queues[batch.partition].acknowledged(batch)
        self._settled.append(batch)

    def answered(self, batches: list[Outgoing], answer: ProduceResponse, now: float) -> None:
        answers = answers_by_partition(answer)
        for batch in batches:
            found = answers.get(batch.partition)
            if found is None:
                raise Malformed(f"The answer of a broker leaves out {place(batch.partition)}.")
            self._judge(batch, found, answer, now)

    def take_settled(self) -> list[Outgoing]:
        settled, self._settled = self._settled, []
        return settled

    def _queue_of(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            if self._identity is None:
                self._identity = identify(self._map, self._stop)
            patience = self._map.patience(f"writing to {place(partition)}", self._stop)
            queue = self._queues[partition] = PartitionQueue(partition, self._identity, patience)
        return queue

    def _leader_of(self, queue: PartitionQueue, now: float) -> Endpoint | None:
        reason: str | ClientError = f"{place(queue.partition)} has no leader"
        try:
            endpoint, _, _ = self._map.locate(queue.partition)
        except BrokerUnreachable as error:
            endpoint, reason = None, error
        except UnknownTopic as error:
            if queue.refused_s > ABSENCE_S_MAX:
                raise
            endpoint, reason = None, error
        if endpoint is None:
            self._map.forget_leader(queue.partition)
            queue.hold(reason, now, is_silent=not isinstance(reason, UnknownTopic))
        return endpoint

    def _judge(
        self, batch: Outgoing, found: PartitionProduceResponse, answer: ProduceResponse, now: float
    ) -> None:
        decided = verdict(found.error_code)
        if decided is Verdict.ACKNOWLEDGED:
            self.acknowledged(batch)
            return
        queue = self._queues[batch.partition]
        queue.failed(batch)
        if decided is Verdict.REFUSED or (decided is Verdict.CORRUPT and batch.was_corrupt):
            raise refusal(batch, found)
        batch.was_corrupt = decided is Verdict.CORRUPT
        if not queue.is_head(batch):
            # It came right behind one that was not taken, and goes again behind that one.
            return
        if decided is Verdict.MISNUMBERED:
            self._renumber(queue, batch, found, now)
        elif not self._map.take_hint(batch.partition, found.current_leader, answer.node_endpoints):
            self._look_again(queue, found.error_code, now)

    def _renumber(
        self, queue: PartitionQueue, batch: Outgoing, found: PartitionProduceResponse, now: float
    ) -> None:
        """Nothing is before it that could be missing, so the leader's books must have been lost."""
        if not queue.is_idempotent:
            raise refusal(batch, found)
        reason = name_of(found.error_code)
        where = place(queue.partition)
        LOGGER.warning("The leader of %s lost track of this producer: %s.", where, reason)
        queue.hold(f"{where}: {reason}", now)
        queue.begin_epoch()

    def _look_again(self, queue: PartitionQueue, code: int, now: float) -> None:
        self._map.forget_leader(queue.partition)
        if code in _ABSENT_CODES and queue.refused_s > ABSENCE_S_MAX:
            sentence = f"The broker does not know {place(queue.partition)}."
            raise UnknownTopic(sentence, topic=queue.partition.topic)
        queue.hold(f"{place(queue.partition)}: {name_of(code)}", now)
