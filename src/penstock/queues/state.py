"""The replicated state of one share coordinator: its queues, as the leaders of their data
partitions have decided them, and who may decide next.

A function of the records before it, and `apply` is its only mutator. What a queue may do is decided
elsewhere (`machine.py`); here is what became of it, for the leader that comes next.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from penstock.model.ids import GroupId, TopicId
from penstock.queues.commands import Change
from penstock.queues.layout import QueueKey, Reader
from penstock.queues.machine import ShareMachine
from penstock.queues.records import (
    UNRESOLVED,
    QueueChanged,
    QueueOpened,
    QueueRecord,
    QueueRemoved,
    QueueStored,
    pack_record,
    read_stored,
)
from penstock.records.errors import CorruptBatch

_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">bi")


class Queue:
    """One queue as it is stored."""

    __slots__ = ("_stored", "key", "machine", "opening", "state_epoch", "term", "version")

    def __init__(self, stored: QueueStored) -> None:
        self.key = stored.key
        self.term = stored.term
        self.opening = stored.opening
        self.state_epoch = stored.state_epoch
        self.version = stored.version
        # None until its start is known.
        self.machine: ShareMachine | None = None
        if stored.whole.start != UNRESOLVED:
            whole = stored.whole
            self.machine = ShareMachine(
                start=whole.start, ranges=whole.ranges, letters=whole.letters
            )
        # The queue as a whole, made when somebody asks for it and kept until it changes.
        self._stored: QueueStored | None = stored

    @property
    def start(self) -> int:
        return UNRESOLVED if self.machine is None else self.machine.start

    @property
    def has_leases(self) -> bool:
        return self.machine is not None and self.machine.leased_count > 0

    @property
    def has_letters(self) -> bool:
        return self.machine is not None and self.machine.has_letters

    def open(self, record: QueueOpened) -> None:
        self.term, self.opening = record.term, record.opening
        self._stored = None

    def change(self, record: QueueChanged) -> None:
        self.version = record.version
        self._stored = None
        for change in record.changes:
            if self.machine is None:
                self.machine = ShareMachine(start=change.start)
            self.machine.apply(change)

    def is_as(self, stored: QueueStored) -> bool:
        """Whether this is what `stored` returned, and nothing has changed since."""
        return self._stored is stored

    def stored(self) -> QueueStored:
        """The queue as a whole."""
        if self._stored is None:
            machine = self.machine
            whole = Change(start=UNRESOLVED) if machine is None else machine.whole()
            self._stored = QueueStored(
                key=self.key,
                term=self.term,
                opening=self.opening,
                state_epoch=self.state_epoch,
                version=self.version,
                whole=whole,
            )
        return self._stored


class QueuesState:
    """All queues of one partition of the state topic."""

    def __init__(self) -> None:
        self._queues: dict[QueueKey, Queue] = {}
        self._of_group: dict[GroupId, dict[QueueKey, None]] = {}
        # Those with dead letters on their way.
        self._with_letters: dict[QueueKey, None] = {}

    def apply(self, record: QueueRecord, /) -> None:
        self._apply(record)
        queue = self._queues.get(record.key)
        if queue is not None and queue.has_letters:
            self._with_letters[record.key] = None
        else:
            self._with_letters.pop(record.key, None)

    def _apply(self, record: QueueRecord) -> None:
        key = record.key
        queue = self._queues.get(key)
        if isinstance(record, QueueStored):
            # What it says itself to be is stored to shorten the log, and a million ranges take
            # long to make.
            if queue is None or not queue.is_as(record):
                self._queues[key] = Queue(record)
                self._of_group.setdefault(key.group_id, {})[key] = None
        elif isinstance(record, QueueRemoved):
            self._remove(key)
        elif queue is None:
            # The log was cut before it: the queue as a whole comes later, or it was removed.
            return
        elif isinstance(record, QueueOpened):
            queue.open(record)
        else:
            queue.change(record)

    def _remove(self, key: QueueKey) -> None:
        if self._queues.pop(key, None) is not None:
            of_group = self._of_group[key.group_id]
            del of_group[key]
            if not of_group:
                del self._of_group[key.group_id]

    # Reading

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._queues)

    def get(self, key: QueueKey) -> Queue | None:
        return self._queues.get(key)

    def of_group(self, group_id: GroupId) -> list[QueueKey]:
        return list(self._of_group.get(group_id, ()))

    def with_letters(self) -> list[QueueKey]:
        """Those that their leaders have something to send for."""
        return list(self._with_letters)

    def of_topics(self, is_meant: Callable[[TopicId], bool]) -> list[QueueKey]:
        return [key for key in self._queues if is_meant(key.topic_id)]

    def validate(self) -> None:
        """Asserts what every sequence of records leaves true; for tests, which call it often."""
        grouped = [key for keys in self._of_group.values() for key in keys]
        assert sorted(grouped) == sorted(self._queues), "the groups do not have all queues"
        assert all(self._of_group.values()), "a group without queues is still there"
        letters = {key for key, queue in self._queues.items() if queue.has_letters}
        assert set(self._with_letters) == letters, "queues with letters are miscounted"
        for key, queue in self._queues.items():
            assert queue.key == key, f"{queue.key} is stored as {key}"
            assert min(queue.opening, queue.state_epoch, queue.version) >= 0, key
            if queue.machine is not None:
                queue.machine.validate()
                assert queue.version or queue.start >= 0

    # Snapshots

    def snapshot(self) -> Callable[[], bytes]:
        return partial(_encode, [queue.stored() for queue in self._queues.values()])

    def restore(self, data: bytes, /) -> None:
        """Into a state that is empty; raises ValueError for what is not a snapshot of queues."""
        try:
            if len(data) < _HEAD.size:
                raise CorruptBatch("a snapshot of queues ends in its head")
            version, count = _HEAD.unpack_from(data)
            if version != _SNAPSHOT_VERSION:
                raise CorruptBatch(f"a snapshot of queues has version {version}")
            reader = Reader(data[_HEAD.size :])
            stored = [read_stored(reader) for _ in range(count)]
            reader.end()
        except CorruptBatch as bad:
            raise ValueError(str(bad)) from bad
        for record in stored:
            self.apply(record)


def _encode(stored: Sequence[QueueStored]) -> bytes:
    """In any thread: what it is made of never changes."""
    head = _HEAD.pack(_SNAPSHOT_VERSION, len(stored))
    return head + b"".join(map(pack_record, stored))
