"""What consumers read, from one request to the next.

Most of what a consumer asks for is as it was when it last asked. So a reader does not look at its
partitions again and again: it hears from them when there may be something new, and each request
looks only at those. What a request costs follows from what is new, not from how many partitions
it names.
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Protocol

from penstock.broker.partitions import Partitions
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import NO_TOPIC_ID, BrokerId, TopicId, TopicName
from penstock.replication.replica import Replica
from penstock.replication.watches import Watch

PartitionKey = tuple[Hashable, int]


def partition_key(topic: TopicName, topic_id: TopicId, partition: int) -> PartitionKey:
    return (topic if topic_id == NO_TOPIC_ID else topic_id, partition)


class Wanted:
    """One partition as a consumer asks for it, and what it last got."""

    __slots__ = (
        "bytes_max",
        "key",
        "last_fetched_term",
        "name",
        "offset",
        "partition",
        "replica",
        "sent_high_watermark",
        "sent_log_start_offset",
        "term",
        "topic",
        "topic_id",
        "watch",
    )

    def __init__(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: int,
        *,
        offset: int,
        bytes_max: int,
        term: int = -1,
        last_fetched_term: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = offset
        self.bytes_max = bytes_max
        self.term = term
        self.last_fetched_term = last_fetched_term
        self.key = partition_key(topic, topic_id, partition)
        # Of a topic that is asked for by its id, once it was found.
        self.name: TopicName | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        # The replica that it hears from.
        self.replica: Replica | None = None
        self.watch: Watch | None = None

    def move_to(self, newer: "Wanted") -> None:
        """Takes over the position of a later request."""
        self.offset = newer.offset
        self.bytes_max = newer.bytes_max
        self.term = newer.term
        self.last_fetched_term = newer.last_fetched_term


class Fetched:
    """What one partition answers: records, or why there are none."""

    __slots__ = (
        "cold_on",
        "diverging",
        "high_watermark",
        "log_start_offset",
        "preferred",
        "reason",
        "records",
        "replica",
        "wanted",
    )

    def __init__(self, wanted: Wanted, reason: Reason | None = None) -> None:
        self.wanted = wanted
        self.reason = reason
        self.high_watermark = -1
        self.log_start_offset = -1
        self.records: FileRange | bytes | None = None
        # Where the records are from.
        self.replica: Replica | None = None
        # The replica whose disk the records may have to be read from before they can be sent.
        self.cold_on: Replica | None = None
        # The term that the consumer should go back to, and where it ended.
        self.diverging: tuple[int, int] | None = None
        # The broker that the consumer should read from instead of this one.
        self.preferred: BrokerId | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to say but where the partition begins and ends."""
        return self.records is None and not self.is_urgent

    @property
    def is_urgent(self) -> bool:
        """Whether the consumer should hear of it at once, although there is nothing to read."""
        return not (self.reason is None and self.diverging is None and self.preferred is None)

    def fail(self, reason: Reason) -> None:
        self.release()
        self.reason = reason
        self.high_watermark = self.log_start_offset = -1

    def release(self) -> None:
        """Lets go of the file; anyone who drops an answer unsent must call this."""
        if isinstance(self.records, FileRange):
            self.records.release()
        self.records = None


class Waiting(Protocol):
    """A request that waits for news."""

    def look(self, wanted: Wanted, /) -> None: ...

    def end_waiting(self) -> None: ...


class Reader:
    """The partitions of one consumer, and which of them may have news."""

    __slots__ = ("_news", "_partitions", "_wanted", "remembers_names", "waiting")

    def __init__(self, partitions: Partitions, wanted: Iterable[Wanted] = ()) -> None:
        self._partitions = partitions
        self._wanted: dict[PartitionKey, Wanted] = {}
        # To be looked at, those first that had their turn longest ago.
        self._news: dict[Wanted, None] = {}
        self.waiting: Waiting | None = None
        # Whether the consumer of a topic that went away hears what became of its name.
        self.remembers_names = False
        for one in wanted:
            self.want(one)

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._wanted.values())

    # What the consumer asks for

    def want(self, wanted: Wanted) -> None:
        """One more partition, or another position in one that is known."""
        known = self._wanted.get(wanted.key)
        if known is None:
            known = self._wanted[wanted.key] = wanted
        else:
            known.move_to(wanted)
        self._news.setdefault(known)

    def moved(self, wanted: Wanted) -> None:
        """Its position was changed."""
        self._news.setdefault(wanted)

    def forget(self, key: PartitionKey) -> None:
        wanted = self._wanted.pop(key, None)
        if wanted is not None:
            self._news.pop(wanted, None)
            _unwatch(wanted)

    # What is new

    @property
    def news(self) -> list[Wanted]:
        """Those that have to be looked at."""
        return list(self._news)

    def find(self, wanted: Wanted) -> Replica:
        if wanted.topic_id == NO_TOPIC_ID:
            return self._partitions.get(wanted.topic, wanted.partition)
        try:
            replica = self._partitions.get_by_id(wanted.topic_id, wanted.partition)
        except Refused as refused:
            if refused.reason is Reason.UNKNOWN_TOPIC_ID and self.remembers_names:
                self._check_name(wanted)
            raise
        wanted.name = replica.partition.topic
        return replica

    def _check_name(self, wanted: Wanted) -> None:
        if wanted.name is not None:
            self._partitions.get(wanted.name, wanted.partition)
            detail = f"{wanted.name} was deleted and created again"
            raise Refused(Reason.INCONSISTENT_TOPIC_ID, detail)

    def looked(self, fetched: Fetched) -> None:
        """Decides whether a partition has to be looked at again before it says so itself."""
        wanted = fetched.wanted
        if not fetched.is_quiet:
            if fetched.records is not None and wanted in self._news:
                # To the back of the line.
                del self._news[wanted]
                self._news[wanted] = None
        elif wanted.watch is not None and wanted.offset == fetched.high_watermark:
            self._news.pop(wanted, None)

    def listen(self) -> None:
        """Hears from now on of every partition that is here."""
        for wanted in self._news:
            try:
                replica = self.find(wanted)
            except Refused:
                # It is looked at with every request until it is here.
                _unwatch(wanted)
                continue
            if wanted.replica is not replica:
                _unwatch(wanted)
                wanted.replica = replica
                wanted.watch = replica.on_advance(partial(self._touched, wanted))

    def _touched(self, wanted: Wanted) -> None:
        self._news.setdefault(wanted)
        if self.waiting is not None:
            self.waiting.look(wanted)

    def close(self) -> None:
        for wanted in self._wanted.values():
            _unwatch(wanted)


def _unwatch(wanted: Wanted) -> None:
    if wanted.watch is not None:
        wanted.watch.cancel()
    wanted.watch = wanted.replica = None
