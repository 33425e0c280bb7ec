"""From where to where each micro-batch of a stream reads."""

import time
from collections.abc import Callable, Collection

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.model.ids import TopicPartition
from penstock.spark.options.bounds import Side
from penstock.spark.options.reading import ReadOptions
from penstock.spark.planning.limits import is_held_back, limited_end
from penstock.spark.planning.ranges import OffsetRange
from penstock.spark.reading.bound_lookup import look_up
from penstock.spark.reading.data_loss import report_loss
from penstock.spark.reading.live_partitions import LivePartitions
from penstock.spark.reading.splitting import split_ranges
from penstock.spark.reading.stream_offsets import Offsets, StreamOffset


class FirstBatchUnknown(ClientError):
    """The first micro-batch must be read again, and nobody knows where it began."""


class StreamPlanner:
    """Belongs to one run of one query; what Spark tells it is the only memory that outlives it."""

    def __init__(
        self,
        cluster: WireCluster,
        options: ReadOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._live = LivePartitions(cluster, options, clock=clock, pause=pause)
        self._initial: StreamOffset | None = None
        # Where the run ends by itself; None for one that goes on.
        self._final: Offsets | None = None
        # When a batch was last let go; None before the first one.
        self._let_go_at: float | None = None
        # What the topics hold, as of the last look.
        self.latest: Offsets | None = None

    def close(self) -> None:
        self._cluster.close()

    def initial(self) -> StreamOffset:
        """Where the first batch begins. Spark asks twice; a live topic must not move in between."""
        if self._initial is None:
            partitions = self._live.all()
            if self._final is not None:
                partitions = [each for each in partitions if each in self._final]
            start = look_up(
                self._cluster,
                self._options.starting,
                partitions,
                Side.STARTING,
                latest=self._final,
            )
            self._initial = StreamOffset(first_start=start)
        return self._initial

    def stop_at_now(self) -> None:
        """No batch goes further than the ends as of this moment."""
        self._final = self._cluster.latest(self._live.existing())

    def end(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Where the batch after `start` ends; `start` itself while there is nothing to read."""
        position = start.position
        latest = self._final
        if latest is None:
            latest = self._live.latest(position)
        self.latest = latest
        self._check_gone(position, latest)
        begins = self._begins(position, latest)
        ends = self._limited(begins, latest) if limited else latest
        if start.is_initial:
            return StreamOffset(ends=ends, first_start=position)
        return start if ends == position else StreamOffset(ends=ends)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """What the tasks of a batch read; the same again when the batch must be repeated."""
        if start == end or end.ends is None:
            return []
        position = _start_of_first(end) if start.is_initial else start.position
        begins = self._begins(position, end.ends)
        found = [
            OffsetRange(partition=partition, start=begins[partition], stop=stop)
            for partition, stop in sorted(end.ends.items())
            if begins[partition] < stop
        ]
        return split_ranges(self._cluster, self._options, found)

    def _limited(self, begins: Offsets, latest: Offsets) -> Offsets:
        if self._is_held_back(begins, latest):
            return begins
        if latest != begins:
            self._let_go_at = self._clock()
        offsets_max = self._options.offsets_per_trigger_max
        if offsets_max is None:
            return latest
        return limited_end(begins, latest, {}, offsets_max=offsets_max)

    def _is_held_back(self, begins: Offsets, latest: Offsets) -> bool:
        """A run that ends by itself holds nothing back, or it would end before all is read."""
        offsets_min = self._options.offsets_per_trigger_min
        if offsets_min is None or self._final is not None:
            return False
        since = None if self._let_go_at is None else self._clock() - self._let_go_at
        return is_held_back(
            begins,
            latest,
            {},
            offsets_min=offsets_min,
            delay_max_s=self._options.trigger_delay_max_s,
            since_last_s=since,
        )

    def _check_gone(self, position: Offsets, latest: Offsets) -> None:
        for partition in sorted(position.keys() - latest.keys()):
            self._report(
                f"{_named(partition)} is gone, and so are its records from offset"
                f" {position[partition]} on, if there were any"
            )

    def _begins(self, position: Offsets, ends: Offsets) -> Offsets:
        """Where each partition goes on: a new one, or one that was made again, at its beginning."""
        new = ends.keys() - position.keys()
        recreated = {p for p in ends.keys() & position.keys() if position[p] > ends[p]}
        for partition in sorted(recreated):
            self._report(
                f"{_named(partition)} ends at offset {ends[partition]}, but the query has already"
                f" reached offset {position[partition]}: the topic was created again, or the start"
                " was set after its end"
            )
        earliest = self._earliest(new | recreated) if new or recreated else {}
        for partition in sorted(new):
            self._check_new(partition, earliest[partition])
        return {p: earliest[p] if p in earliest else position[p] for p in ends}

    def _earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """A batch that is repeated may hold partitions that have been deleted since.

        If the query may lose data they are read from 0 on, and their tasks find nothing there.
        """
        try:
            return self._cluster.earliest(partitions)
        except UnknownTopic:
            if self._options.fail_on_data_loss:
                raise
            return dict.fromkeys(partitions, 0)

    def _check_new(self, partition: TopicPartition, earliest: int) -> None:
        if earliest > 0:
            self._report(
                f"{_named(partition)} is new and starts at offset {earliest}: the records before it"
                " were deleted before they were read"
            )

    def _report(self, what: str) -> None:
        report_loss(what, fail=self._options.fail_on_data_loss)


def _named(partition: TopicPartition) -> str:
    return f"Partition {partition.partition} of topic {partition.topic}"


def _start_of_first(end: StreamOffset) -> Offsets:
    if end.first_start is None:
        raise FirstBatchUnknown(
            "The first micro-batch of this checkpoint was not finished and must be read again, but"
            " the checkpoint does not say where it started: start the query on a new checkpoint,"
            " with startingOffsets that say where to start."
        )
    return end.first_start
