"""The batches of one partition on their way to its leader, in order and without duplicates.

A producer's records are numbered per partition (KIP-98): a leader takes only what follows the last
thing it took, and recognises the last five batches when they come again. So several may be under
way at once, and after a failure all of them are sent again in order. Two cases need more care:

- A leader that has never seen the producer takes any number. Only one batch is under way until one
  was acknowledged, or a second could be taken in place of the first.
- A leader that lost what it knew of the producer refuses the first batch of those that wait. Then
  the numbers start again from 0 in a new epoch (KIP-360). Epochs count per partition, as each
  partition's leader keeps its own books.

This file decides and does no I/O.
"""

from collections import deque
from collections.abc import Iterator

from penstock.client.errors import ClientError
from penstock.client.wire.patience import Patience
from penstock.client.wire.stamping import NO_SEQUENCE, NOBODY, Identity, stamp_producer
from penstock.model.ids import TopicPartition
from penstock.records.batch import SEQUENCE_MODULUS

# As many as a leader recognises.
IN_FLIGHT_MAX = 5
EPOCH_MAX = 2**15 - 1


class Outgoing:
    """One batch that is not acknowledged yet."""

    __slots__ = (
        "_stamped",
        "count",
        "data",
        "is_in_flight",
        "partition",
        "sequence",
        "was_corrupt",
    )

    def __init__(self, partition: TopicPartition, data: bytearray, count: int) -> None:
        self.partition = partition
        self.data = data
        self.count = count
        self.sequence = NO_SEQUENCE
        self.is_in_flight = False
        self.was_corrupt = False
        self._stamped: tuple[Identity, int] | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    def stamp(self, identity: Identity) -> None:
        if self._stamped != (identity, self.sequence):
            stamp_producer(self.data, identity, self.sequence)
            self._stamped = (identity, self.sequence)


class PartitionQueue:
    """`identity` is NOBODY for a producer without idempotence, which has one batch under way."""

    def __init__(self, partition: TopicPartition, identity: Identity, patience: Patience) -> None:
        self.partition = partition
        self.identity = identity
        # Before this time nothing is sent again.
        self.not_before = 0.0
        self._patience = patience
        self._batches: deque[Outgoing] = deque()
        self._in_flight = 0
        self._sequence = 0
        self._is_proven = False
        self._is_recovering = False
        self._needs_epoch = False

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._batches)

    @property
    def is_idempotent(self) -> bool:
        return self.identity != NOBODY

    @property
    def refused_s(self) -> float:
        """How long brokers have answered without taking anything."""
        return self._patience.refused_s

    def add(self, batch: Outgoing) -> None:
        if not self._batches:
            # It was idle, which is not the same as stuck.
            self._patience.progress()
        self._number(batch)
        self._batches.append(batch)

    def is_held(self, now: float) -> bool:
        """Whether it waits for nothing but time."""
        return bool(self._batches) and now < self.not_before

    def is_head(self, batch: Outgoing) -> bool:
        return bool(self._batches) and self._batches[0] is batch

    def next_to_send(self, now: float) -> Outgoing | None:
        """The next batch, if one may go now; it counts as under way when `sent` is called."""
        if now < self.not_before or self._in_flight >= self._window():
            return None
        return next((batch for batch in self._batches if not batch.is_in_flight), None)

    def sent(self, batch: Outgoing) -> None:
        assert not batch.is_in_flight
        batch.stamp(self.identity)
        batch.is_in_flight = True
        self._in_flight += 1

    def acknowledged(self, batch: Outgoing) -> None:
        self._landed(batch)
        self._batches.remove(batch)
        self._is_proven = True
        self._patience.progress()

    def failed(self, batch: Outgoing) -> None:
        """It comes again, after those before it and before those behind it."""
        self._is_recovering = self._in_flight > 1
        self._is_proven = False
        self._landed(batch)

    def hold(self, reason: str | ClientError, now: float, *, is_silent: bool = False) -> None:
        """Nothing is sent for a while; raises GaveUp when that has gone on for too long."""
        pause_s = self._patience.next_pause_s(reason, is_silent=is_silent)
        self.not_before = max(self.not_before, now + pause_s)

    def begin_epoch(self) -> None:
        """As soon as nothing is under way, everything that waits is numbered from 0 on."""
        assert self.is_idempotent
        self._needs_epoch = True
        self._renumber()

    def _window(self) -> int:
        if self._is_recovering:
            return 0
        return IN_FLIGHT_MAX if self._is_proven and self.is_idempotent else 1

    def _landed(self, batch: Outgoing) -> None:
        assert batch.is_in_flight
        batch.is_in_flight = False
        self._in_flight -= 1
        if self._in_flight == 0:
            self._is_recovering = False
        self._renumber()

    def _renumber(self) -> None:
        if not self._needs_epoch or self._in_flight > 0:
            return
        assert self.identity.epoch < EPOCH_MAX, "patience ends long before"
        self._needs_epoch = False
        self._is_proven = False
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self._sequence = 0
        for batch in self._batches:
            self._number(batch)

    def _number(self, batch: Outgoing) -> None:
        if self.is_idempotent:
            batch.sequence = self._sequence
            self._sequence = (self._sequence + batch.count) % SEQUENCE_MODULUS
