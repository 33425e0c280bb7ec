"""Takes what producers send: finds the partition, appends, and answers when all of it is safe."""

import logging
from collections.abc import Callable
from functools import partial

from penstock.broker.deadlines import Deadlines
from penstock.broker.later import Later
from penstock.broker.partitions import Partitions
from penstock.broker.schema_gate import SchemaGate
from penstock.cluster.topic_names import is_internal
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicName
from penstock.records.batch import ATTRIBUTES_POSITION, CODEC_MASK
from penstock.records.compression import Codec
from penstock.records.errors import CorruptBatch
from penstock.records.legacy import upgrade
from penstock.replication.admission import RecordsRefused as RecordsRefused
from penstock.replication.commit import Commit as Commit
from penstock.replication.replica import Appended as Appended
from penstock.replication.replica import Replica

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
INTERNAL_PREFIX = "__"
_CODEC_POSITION = ATTRIBUTES_POSITION + 1

Batches = bytes | memoryview
logger = logging.getLogger(__name__)


class Part:
    """What became of the batch for one partition: appended and perhaps safe, or refused."""

    __slots__ = ("appended", "commit", "error", "partition", "topic", "topic_id")

    def __init__(self, topic: TopicName, topic_id: TopicId, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.appended: Appended | None = None
        # What its answer waits for, if anything.
        self.commit: Commit | None = None
        self.error: Refused | None = None


class Production(Later[list[Part]]):
    """One producer's batches for some partitions: answered when each is safe, refused or late.

    It holds nothing of the request, whose records lie in a buffer that is used again.
    """

    __slots__ = ("_acks", "_is_waiting", "_left", "_produce", "deadline", "parts")

    def __init__(self, produce: "Produce", acks: int, deadline: float) -> None:
        super().__init__()
        self._produce = produce
        self._acks = acks
        # In seconds of the monotonic clock.
        self.deadline = deadline
        self.parts: list[Part] = []
        self._left = 0
        self._is_waiting = False

    def append(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: int,
        batches: Batches | None,
        *,
        is_legacy: bool = False,
        takes_zstd: bool = True,
        expected: int = -1,
        is_copy: bool = False,
    ) -> None:
        """Appends one batch, or a message set of the formats before batches, to a partition by
        name, or by id where it has no name. Copies of records that were in the partition before
        are taken without a look at their schemas."""
        part = Part(topic, topic_id, partition)
        self.parts.append(part)
        produce, acks = self._produce, self._acks
        try:
            replica = produce.find(topic, topic_id, partition)
            if is_legacy:
                batches = upgraded(batches)
            # Who wants no more than the leader's own copy may write while too few hold another.
            acks_all = acks == ACKS_ALL
            if replica.config.schema_validation is not None and not is_copy:
                check = produce.gate.check(replica, batches)
                if check is not None:
                    self._left += 1
                    later = partial(
                        produce.append,
                        replica,
                        acks_all=acks_all,
                        takes_zstd=takes_zstd,
                        expected=expected,
                        many=is_legacy,
                    )
                    check.then(self._checked, (part, later))
                    return
            appended = produce.append(
                replica,
                batches,
                acks_all=acks_all,
                takes_zstd=takes_zstd,
                expected=expected,
                many=is_legacy,
            )
        except Refused as refused:
            part.error = refused
            return
        part.appended = appended
        commit = appended.done if acks == ACKS_ALL else appended.stored
        if commit is not None:
            part.commit = commit
            self._left += 1
            commit.then(self._settled)

    def _checked(
        self, waiting: tuple[Part, Callable[[Batches], Appended]], check: Later[bytes]
    ) -> None:
        """The records may be appended, or may not; whether anybody still waits for that or not."""
        part, append = waiting
        try:
            if check.error is not None:
                raise check.error
            part.appended = append(check.answer)
        except Refused as refused:
            part.error = refused
        except Exception as bug:
            logger.error("a look at schemas failed, which is a bug", exc_info=bug)
            part.error = Refused(Reason.UNKNOWN_SERVER_ERROR, "internal error")
        else:
            commit = part.appended.done if self._acks == ACKS_ALL else part.appended.stored
            if commit is not None:
                part.commit = commit
                commit.then(self._settled)
                return
        self._settled(None)

    def finish(self) -> "list[Part] | Production":
        """To be called once all is appended: the answer, or itself if there is none yet."""
        if self._left:
            self._is_waiting = True
            self._produce.deadlines.add(self)
            return self
        return self._outcome()

    def _settled(self, _: Refused | None) -> None:
        self._left -= 1
        if not self._left and self._is_waiting:
            self._is_waiting = False
            self._produce.deadlines.discard(self)
            self.settle(self._outcome())

    def expire(self) -> None:
        """Some of it may have been written; the writes themselves go on."""
        self._is_waiting = False
        self.settle(self._outcome())

    def cancel(self) -> None:
        super().cancel()
        self._produce.deadlines.discard(self)

    def _outcome(self) -> list[Part]:
        for part in self.parts:
            commit = part.commit
            if commit is not None:
                part.error = commit.error if commit.is_settled else _late()
            elif part.appended is None and part.error is None:
                part.error = _late()
        return self.parts


def _late() -> Refused:
    return Refused(Reason.REQUEST_TIMED_OUT, "the write took longer than the timeout")


class Produce:
    """The use case behind every door's way to write records."""

    # Set once there is one: it reads the registry's topic by other use cases.
    gate: SchemaGate

    def __init__(self, *, partitions: Partitions, clock: Clock) -> None:
        self._partitions = partitions
        self.deadlines = Deadlines(clock)

    def start(self, acks: int, deadline: float) -> Production:
        return Production(self, acks, deadline)

    def find(self, topic: TopicName, topic_id: TopicId, partition: int) -> Replica:
        """The replica of a partition by its name, or by its id where it has no name."""
        if topic or topic_id == NO_TOPIC_ID:
            replica = self._partitions.get(topic, partition)
        else:
            replica = self._partitions.get_by_id(topic_id, partition)
            topic = replica.partition.topic
        if topic.startswith(INTERNAL_PREFIX) and is_internal(topic):
            raise Refused(Reason.INVALID_TOPIC, f"only the broker writes to {topic}")
        return replica

    def append(
        self,
        replica: Replica,
        batches: Batches | None,
        *,
        acks_all: bool = True,
        takes_zstd: bool = True,
        expected: int = -1,
        many: bool = False,
    ) -> Appended:
        """Appends one batch, or several where an old client's messages became such."""
        if not batches:
            raise Refused(Reason.INVALID_RECORD, "there is no batch")
        if not takes_zstd and _codec(batches) == Codec.ZSTD:
            detail = "zstd needs version 7 of Produce"
            raise Refused(Reason.UNSUPPORTED_COMPRESSION_TYPE, detail)
        return replica.append(batches, many=many, acks_all=acks_all, expected=expected)


def upgraded(messages: Batches | None) -> bytes:
    """The batches of a message set in the formats that came before record batches."""
    try:
        batches = upgrade(bytes(messages or b""))
    except CorruptBatch as bad:
        raise Refused(Reason.CORRUPT_MESSAGE, str(bad)) from None
    if not batches:
        raise Refused(Reason.INVALID_RECORD, "there is no message")
    return batches


def _codec(batches: Batches) -> int:
    return batches[_CODEC_POSITION] & CODEC_MASK if len(batches) > _CODEC_POSITION else 0
