"""Takes what producers send: finds the partition, appends, and answers when all of it is safe."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from penstock.broker.deadlines import Deadlines
from penstock.broker.partitions import Partitions
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
OnSafe = Callable[[Sequence[Refused | None]], None]


class Wait(ABC):
    """Somebody who waits until one append is safe, refused, or out of time."""

    __slots__ = ("_deadlines", "_is_over", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._is_over = False

    @abstractmethod
    def finish(self, error: Refused | None) -> None:
        """Called once."""

    def start(self, commit: Commit, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        deadlines.add(self)
        commit.then(self._settled)

    def _settled(self, error: Refused | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._deadlines.discard(self)
            self.finish(error)

    def expire(self) -> None:
        """Tells whoever waits that it may have been written; the write itself goes on."""
        self._is_over = True
        self.finish(_late())


class Safety:
    """Waits until the appends of one produce to several partitions are settled or too late."""

    __slots__ = ("_deadlines", "_errors", "_left", "_on_done", "deadline")

    def __init__(self, deadlines: Deadlines, deadline: float, count: int, on_done: OnSafe) -> None:
        self._deadlines = deadlines
        self._on_done: OnSafe | None = on_done
        self._errors: dict[int, Refused | None] = {}
        self._left = count
        self.deadline = deadline

    def settled(self, index: int, error: Refused | None) -> None:
        self._errors[index] = error
        self._left -= 1
        if not self._left and self._on_done is not None:
            self._deadlines.discard(self)
            self._on_done([self._errors[index] for index in range(len(self._errors))])

    def expire(self) -> None:
        on_done, self._on_done = self._on_done, None
        assert on_done is not None
        count = len(self._errors) + self._left
        late = _late()
        on_done([self._errors.get(index, late) for index in range(count)])


def _late() -> Refused:
    return Refused(Reason.REQUEST_TIMED_OUT, "the write took longer than the timeout")


class Produce:
    """The use case behind every door's way to write records."""

    def __init__(self, *, partitions: Partitions, clock: Clock) -> None:
        self._partitions = partitions
        self._deadlines = Deadlines(clock)

    def append(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: int,
        batches: Batches | None,
        *,
        acks_all: bool = True,
        takes_zstd: bool = True,
    ) -> Appended:
        """Appends one batch to a partition by name, or by id where there is one.

        Whoever wants no more than the leader's own copy may write while too few hold another.
        """
        replica = self._find(topic, topic_id, partition)
        if not batches:
            raise Refused(Reason.INVALID_RECORD, "there is no batch")
        if not takes_zstd and _codec(batches) == Codec.ZSTD:
            detail = "zstd needs version 7 of Produce"
            raise Refused(Reason.UNSUPPORTED_COMPRESSION_TYPE, detail)
        return replica.append(batches, acks_all=acks_all)

    def append_messages(
        self, topic: TopicName, partition: int, messages: bytes, *, acks_all: bool = True
    ) -> Appended:
        """Appends a message set in the formats that came before record batches."""
        replica = self._find(topic, NO_TOPIC_ID, partition)
        try:
            batches = upgrade(messages)
        except CorruptBatch as bad:
            raise Refused(Reason.CORRUPT_MESSAGE, str(bad)) from None
        if not batches:
            raise Refused(Reason.INVALID_RECORD, "there is no message")
        return replica.append(batches, many=True, acks_all=acks_all)

    def when_one_safe(self, commit: Commit, wait: Wait) -> None:
        """Finishes the wait once, with the refusal or None."""
        wait.start(commit, self._deadlines)

    def when_safe(self, commits: Sequence[Commit], deadline: float, on_done: OnSafe) -> None:
        """Calls back once, with the refusal or None of each commit, when all are settled."""
        waiter = Safety(self._deadlines, deadline, len(commits), on_done)
        self._deadlines.add(waiter)
        for index, commit in enumerate(commits):
            commit.then(partial(waiter.settled, index))

    def _find(self, topic: TopicName, topic_id: TopicId, partition: int) -> Replica:
        if topic or topic_id == NO_TOPIC_ID:
            replica = self._partitions.get(topic, partition)
        else:
            replica = self._partitions.get_by_id(topic_id, partition)
            topic = replica.partition.topic
        if topic.startswith(INTERNAL_PREFIX) and is_internal(topic):
            raise Refused(Reason.INVALID_TOPIC, f"{topic} is written by the broker alone")
        return replica


def _codec(batches: Batches) -> int:
    return batches[_CODEC_POSITION] & CODEC_MASK if len(batches) > _CODEC_POSITION else 0
