"""Which partition each row goes to, decided as Kafka's Java producer decides it.

A row's own partition comes first, then the hash of its key; rows without either stick to one
partition until they have filled a record batch there, and then go on to the next. Rows of a
partition keep their order, and so do rows of a key.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.partitioning import murmur2_partitions
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.writing.errors import InputError
from penstock.spark.writing.slab import Slab

# The partition of a row that has neither a partition nor a key, until one is chosen.
_UNDECIDED = -1
# numpy sorts 16-bit numbers by radix, many times faster than wider ones.
_RADIX_GROUPS_MAX = 1 << 15

Rows = npt.NDArray[np.intp]
Partitions = npt.NDArray[np.int32]
# How many partitions each topic has.
Counts = npt.NDArray[np.int32]
# Which of the topics each row goes to; None where there is only one.
TopicOfRow = npt.NDArray[np.int32] | None


class Share(NamedTuple):
    """The rows of a slab that go to one partition, in order."""

    partition: TopicPartition
    rows: Rows


class Topics(Protocol):
    """What routing must know about topics."""

    def partition_count(self, topic: str, *, refresh: bool = False) -> int: ...


class Router:
    """Cuts slabs into shares; remembers where rows without a key went last."""

    def __init__(
        self,
        topics: Topics,
        *,
        topic: str | None,
        batch_bytes: int,
        choose: Callable[[int], int],
        ignore_keys: bool = False,
    ) -> None:
        """`choose(n)` picks one of n partitions to begin with, so that tasks spread out."""
        self._topics = topics
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._choose = choose
        self._ignore_keys = ignore_keys
        self._sticky: dict[str, StickyPartition] = {}

    def shares(self, slab: Slab) -> Iterator[Share]:
        names, topic_of_row = self._topics_of(slab)
        counts = np.array([self._topics.partition_count(name) for name in names], np.int32)
        partitions = self._key_partitions(slab, counts, topic_of_row)
        if slab.partition is not None:
            own = OwnPartitions(slab.partition)
            counts = self._checked(own, names, counts, topic_of_row)
            partitions = np.where(own.given, own.partitions, partitions)
        sizes: npt.NDArray[np.int64] | None = None
        for topic, partition, rows in _groups(counts, topic_of_row, partitions):
            name = names[topic]
            if partition != _UNDECIDED:
                yield Share(_named(name, partition), rows)
                continue
            sizes = slab.sizes() if sizes is None else sizes
            yield from self._stick(name, int(counts[topic]), rows, sizes)

    def _topics_of(self, slab: Slab) -> tuple[list[str], TopicOfRow]:
        """The names of the slab's topics, and which of them each row goes to."""
        if self._topic is not None:
            return [self._topic], None
        assert slab.topic is not None, "a layout without a topic's name has its column"
        if slab.topic.null_count:
            raise InputError(
                'A row has no topic: the column "topic" is null there, and the option "topic" '
                "is not set."
            )
        encoded = slab.topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return names, None if len(names) == 1 else encoded.indices.to_numpy()

    def _key_partitions(self, slab: Slab, counts: Counts, topic_of_row: TopicOfRow) -> Partitions:
        """Where the keys put the rows; undecided without a key."""
        if slab.key is None or slab.key.null_count == slab.count or self._ignore_keys:
            return np.full(slab.count, _UNDECIDED, np.int32)
        distinct = np.unique(counts)
        if len(distinct) == 1 or topic_of_row is None:
            return murmur2_partitions(slab.key, int(distinct[0]))
        partitions = np.empty(slab.count, np.int32)
        count_of_row = counts[topic_of_row]
        for count in distinct:
            chosen = murmur2_partitions(slab.key, int(count))
            np.copyto(partitions, chosen, where=count_of_row == count)
        return partitions

    def _checked(
        self, own: "OwnPartitions", names: list[str], counts: Counts, topic_of_row: TopicOfRow
    ) -> Counts:
        """The partition counts, which may have grown since they were read, if all rows fit."""
        if own.first_beyond(counts, topic_of_row) is None:
            return counts
        asked_anew = [self._topics.partition_count(name, refresh=True) for name in names]
        counts = np.array(asked_anew, np.int32)
        row = own.first_beyond(counts, topic_of_row)
        if row is None:
            return counts
        topic = 0 if topic_of_row is None else topic_of_row[row]
        raise InputError(
            f"A row asks for partition {own.partitions[row]} of topic {names[topic]}, whose "
            f"partitions are numbered from 0 to {counts[topic] - 1}."
        )

    def _stick(
        self, name: str, partition_count: int, rows: Rows, sizes: npt.NDArray[np.int64]
    ) -> Iterator[Share]:
        sticky = self._sticky.get(name)
        if sticky is None:
            sticky = StickyPartition(self._choose(partition_count), self._batch_bytes)
            self._sticky[name] = sticky
        for partition, part in sticky.runs(rows, sizes[rows], partition_count):
            yield Share(_named(name, partition), part)


class OwnPartitions:
    """The partitions that rows ask for themselves."""

    def __init__(self, column: pa.Array) -> None:
        self.given: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
        self.partitions: Partitions = column.fill_null(0).to_numpy()

    def first_beyond(self, counts: Counts, topic_of_row: TopicOfRow) -> int | None:
        """The first row that asks for a partition that its topic does not have."""
        count = counts[0] if topic_of_row is None else counts[topic_of_row]
        fits = (self.partitions >= 0) & (self.partitions < count)
        beyond = np.flatnonzero(self.given & ~fits)
        return int(beyond[0]) if len(beyond) else None


class StickyPartition:
    """Where rows without a key go: to one partition until a record batch is full, then on."""

    def __init__(self, first: int, batch_bytes: int) -> None:
        self._partition = first
        self._batch_bytes = batch_bytes
        self._filled_bytes = 0

    def runs(
        self, rows: Rows, sizes: npt.NDArray[np.int64], partition_count: int
    ) -> Iterator[tuple[int, Rows]]:
        after = self._filled_bytes + np.cumsum(sizes)
        # How many record batches were full before each row, and before the row that comes next.
        full = np.append(after - sizes, after[-1]) // self._batch_bytes
        cuts = np.flatnonzero(np.diff(full)) + 1
        self._filled_bytes = int(after[-1]) % self._batch_bytes
        for start, stop in pairwise([0, *cuts.tolist(), len(rows)]):
            if start:
                self._partition += 1
            if start < stop:
                yield self._partition % partition_count, rows[start:stop]


def _groups(
    counts: Counts, topic_of_row: TopicOfRow, partitions: Partitions
) -> Iterator[tuple[int, int, Rows]]:
    """Rows by topic and partition, each group in the order of its rows.

    Every topic has a group for the undecided and one for each of its partitions, in this order.
    """
    firsts = np.concatenate([[0], np.cumsum(counts + 1)])
    group_count = int(firsts[-1])
    group_of_row = partitions + 1
    if topic_of_row is not None:
        group_of_row = group_of_row + firsts[topic_of_row]
    if group_count <= _RADIX_GROUPS_MAX:
        group_of_row = group_of_row.astype(np.int16)
    order = np.argsort(group_of_row, kind="stable")
    sizes = np.bincount(group_of_row, minlength=group_count)
    ends = np.cumsum(sizes)
    for group in np.flatnonzero(sizes):
        topic = int(np.searchsorted(firsts, group, side="right")) - 1
        rows = order[ends[group] - sizes[group] : ends[group]]
        yield topic, int(group - firsts[topic]) - 1, rows


def _named(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
