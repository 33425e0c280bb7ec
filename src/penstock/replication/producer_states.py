"""What a partition knows of its idempotent producers: epochs, sequences and their last batches.

The state is a function of the log's prefix: it changes only through `record` (one batch was
appended), it can be taken back batch by batch when a write fails, and a snapshot of it is in the
log's checkpoint. The rules are Kafka's (KIP-98, KIP-360):

- a batch with the sequence range of one of the last five batches of the same epoch is a duplicate;
- a lower epoch than the last one seen is fenced;
- a higher epoch starts at sequence 0;
- the same epoch goes on where it left off, and wraps from 2^31 - 1 to 0;
- a producer that the partition does not know may start anywhere: its past may have expired.

One thing is kept beside the log's prefix: a batch with which nothing is wrong, but which could not
be taken just then, is awaited. What its producer sent right behind it is refused for the same
reason. If the producer is unknown that would otherwise overtake it; and if it is known, the answer
that the sequence is out of order would say that something is lost. Upon that librdkafka goes on
with a new epoch, in which nobody can tell what it sends again from what it sends first.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.records.batch import BatchHeader

BATCHES_KEPT = 5
# The least recently seen producer is forgotten beyond this: it bounds the memory of a partition.
PRODUCERS_MAX = 100_000
SEQUENCE_MAX = 2**31 - 1
# By then a client has given up on a batch (Kafka's delivery.timeout.ms): it won't come again.
AWAITED_S = 120.0

_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">BI")
_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqqq")


class ProducerBatch(NamedTuple):
    """One appended batch, as much of it as a duplicate's answer needs."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer(NamedTuple):
    """One producer's newest epoch; immutable, so that taking an append back is an assignment."""

    epoch: int
    seen_ms: int
    batches: tuple[ProducerBatch, ...]


class Awaited(NamedTuple):
    """Batches that a producer must come back with, in this order, and why they were refused."""

    epoch: int
    sequences: tuple[int, ...]
    reason: Reason
    since_s: float


class ProducerStates:
    """All producers of one partition, least recently seen first."""

    __slots__ = ("_awaited", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._awaited: dict[int, Awaited] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def validate(self) -> None:
        """Asserts what every append leaves true; for tests, which call it often."""
        for producer in self._producers.values():
            assert 0 < len(producer.batches) <= BATCHES_KEPT
            end = -1
            for batch in producer.batches:
                assert end < batch.base_offset <= batch.last_offset
                end = batch.last_offset

    def check(self, header: BatchHeader, clock: Clock) -> ProducerBatch | None:
        """The batch that this one repeats, or None when it may be appended; refuses the rest."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if self._awaited:
                self._check_awaited(header, clock)
            return None
        epoch, _, batches = producer
        base_sequence = header.base_sequence
        if header.producer_epoch == epoch:
            next_sequence = (batches[-1].last_sequence + 1) & SEQUENCE_MAX
            if base_sequence == next_sequence:
                return None
            for batch in batches:
                if batch.base_sequence == base_sequence and (
                    batch.last_sequence == header.last_sequence
                ):
                    return batch
            raise self._out_of_order(header, next_sequence, clock)
        self._check_other_epoch(header, epoch, clock)
        return None

    def _check_other_epoch(self, header: BatchHeader, epoch: int, clock: Clock) -> None:
        if header.producer_epoch < epoch:
            raise Refused(
                Reason.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} sent epoch {header.producer_epoch},"
                f" but {epoch} was already seen",
            )
        if header.base_sequence != 0:
            raise self._out_of_order(header, 0, clock)

    def _check_awaited(self, header: BatchHeader, clock: Clock) -> None:
        awaited = self._awaited.get(header.producer_id)
        if awaited is None:
            return
        first = awaited.sequences[0]
        if header.producer_epoch == awaited.epoch and header.base_sequence != first:
            raise self._out_of_order(header, first, clock)

    def _out_of_order(self, header: BatchHeader, next_sequence: int, clock: Clock) -> Refused:
        said = (
            f"producer {header.producer_id} sent sequence {header.base_sequence} of epoch"
            f" {header.producer_epoch} instead of {next_sequence}"
        )
        awaited = self._awaited.get(header.producer_id)
        if (
            awaited is not None
            and awaited.epoch == header.producer_epoch
            and next_sequence in awaited.sequences
            and clock.monotonic() - awaited.since_s < AWAITED_S
        ):
            return Refused(awaited.reason, f"{said}, which was refused for now")
        return Refused(Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, said)

    def await_again(self, header: BatchHeader, reason: Reason, clock: Clock) -> None:
        """The batch was refused though nothing is wrong with it; it must come before later ones."""
        producer = self._producers.get(header.producer_id)
        if producer is not None and producer.epoch == header.producer_epoch:
            last_sequence = producer.batches[-1].last_sequence
            if not _is_before(last_sequence, header.base_sequence):
                # It was taken already, and sent again because the answer was lost.
                return
        self._await(header.producer_id, header.producer_epoch, header.base_sequence, reason, clock)

    def _await(
        self, producer_id: int, epoch: int, sequence: int, reason: Reason, clock: Clock
    ) -> None:
        # Taken out and put back, so that the oldest is the first to be forgotten.
        awaited, now_s = self._awaited.pop(producer_id, None), clock.monotonic()
        known: tuple[int, ...] = ()
        if awaited is not None and awaited.epoch == epoch and now_s - awaited.since_s < AWAITED_S:
            known = awaited.sequences
        before = [each for each in known if _is_before(each, sequence)]
        after = [each for each in known if _is_before(sequence, each)]
        sequences = (*before, sequence, *after)[:BATCHES_KEPT]
        self._awaited[producer_id] = Awaited(epoch, sequences, reason, now_s)
        if len(self._awaited) > PRODUCERS_MAX:
            del self._awaited[next(iter(self._awaited))]

    def _await_no_longer(self, header: BatchHeader) -> None:
        """Only what is yet to come: a follower refuses it before it has what is before it."""
        awaited = self._awaited.get(header.producer_id)
        if awaited is None or awaited.epoch > header.producer_epoch:
            return
        to_come: tuple[int, ...] = ()
        if awaited.epoch == header.producer_epoch:
            last = header.last_sequence
            to_come = tuple(each for each in awaited.sequences if _is_before(last, each))
        if to_come:
            self._awaited[header.producer_id] = awaited._replace(sequences=to_come)
        else:
            del self._awaited[header.producer_id]

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> Producer | None:
        """Notes an appended batch; returns what was there before, for `take_back`."""
        producers = self._producers
        if self._awaited:
            self._await_no_longer(header)
        batch = ProducerBatch(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta,
            header.max_timestamp,
        )
        # Taken out and put back, so that the dict stays in the order of last use.
        before = producers.pop(header.producer_id, None)
        if before is None or before.epoch != header.producer_epoch:
            batches: tuple[ProducerBatch, ...] = (batch,)
        elif len(before.batches) < BATCHES_KEPT:
            batches = (*before.batches, batch)
        else:
            batches = (*before.batches[1:], batch)
        producers[header.producer_id] = Producer(header.producer_epoch, now_ms, batches)
        if len(producers) > PRODUCERS_MAX:
            del producers[next(iter(producers))]
        return before

    def take_back(self, producer_id: int, before: Producer | None, clock: Clock) -> None:
        """Undoes one `record`; several are undone newest first."""
        taken_back = self._producers.pop(producer_id, None)
        if before is not None:
            self._producers[producer_id] = before
        if taken_back is not None:
            # Another leader's log lacks it, and its sender knows that this one's leadership ended.
            sequence = taken_back.batches[-1].base_sequence
            reason = Reason.NOT_LEADER_OR_FOLLOWER
            self._await(producer_id, taken_back.epoch, sequence, reason, clock)

    def expire(self, now_ms: int, expiry_ms: int, clock: Clock) -> None:
        """Forgets producers that were not seen for `expiry_ms`; costs only what it removes."""
        expired = []
        for producer_id, producer in self._producers.items():
            if now_ms - producer.seen_ms < expiry_ms:
                break
            expired.append(producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
        since_s = clock.monotonic() - expiry_ms / 1000
        for producer_id in [key for key, value in self._awaited.items() if value.since_s < since_s]:
            del self._awaited[producer_id]

    def snapshot(self) -> bytes:
        return encode_producers(self._producers)

    def copy(self, instead: Mapping[int, Producer | None]) -> dict[int, Producer]:
        """All producers as of now, but some as they were at another time; None: not there."""
        producers = self._producers.copy()
        for producer_id, before in instead.items():
            if before is not None:
                producers[producer_id] = before
            else:
                producers.pop(producer_id, None)
        return producers

    def snapshot_before(self, offset: int) -> bytes:
        """What is known of producers by their batches before `offset` alone."""
        producers = {}
        for producer_id, (epoch, seen_ms, batches) in self._producers.items():
            kept = tuple(batch for batch in batches if batch.last_offset < offset)
            if kept:
                producers[producer_id] = Producer(epoch, seen_ms, kept)
        return encode_producers(producers)

    def restore(self, data: bytes) -> None:
        """Takes over a snapshot; no bytes at all are the state of an empty log."""
        self._producers.clear()
        self._awaited.clear()
        if not data:
            return
        version, count = _SNAPSHOT_HEAD.unpack_from(data)
        assert version == _VERSION, "the data directory's format tells newer ones apart"
        position = _SNAPSHOT_HEAD.size
        for _ in range(count):
            producer_id, epoch, seen_ms, batch_count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            end = position + batch_count * _BATCH.size
            batches = tuple(
                ProducerBatch(*fields) for fields in _BATCH.iter_unpack(data[position:end])
            )
            self._producers[producer_id] = Producer(epoch, seen_ms, batches)
            position = end


def encode_producers(producers: Mapping[int, Producer]) -> bytes:
    """As `ProducerStates.restore` takes it."""
    parts = [_SNAPSHOT_HEAD.pack(_VERSION, len(producers))]
    for producer_id, (epoch, seen_ms, batches) in producers.items():
        parts.append(_PRODUCER.pack(producer_id, epoch, seen_ms, len(batches)))
        parts += [_BATCH.pack(*batch) for batch in batches]
    return b"".join(parts)


def _is_before(sequence: int, other: int) -> bool:
    """Whether it comes earlier, in numbers that start again after the largest one."""
    return 0 < (other - sequence) & SEQUENCE_MAX < SEQUENCE_MAX // 2
