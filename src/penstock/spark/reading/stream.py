"""A topic as a stream: how Spark's questions during a query are answered.

One process plans a query for as long as it runs; executors see only pickled copies that never plan.
"""

# Spark names the methods.
# ruff: noqa: N802

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.spark.options.reading import ReadOptions
from penstock.spark.planning.errors import PlanError
from penstock.spark.planning.offsets import to_json
from penstock.spark.reading.group_progress import COMMIT_TIMEOUT_S, GroupProgress
from penstock.spark.reading.notes import log_notes
from penstock.spark.reading.scanning import scan
from penstock.spark.reading.stream_offsets import StreamOffset
from penstock.spark.reading.stream_planning import StreamPlanner
from penstock.spark.reading.topic_range import TopicRange, topic_ranges

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None
        self._group: GroupProgress | None = None
        # Why there is no offset at which a first batch could begin.
        self._start_refused: ClientError | None = None

    def __getstate__(self) -> dict[str, object]:
        """Connections stay where they were made."""
        return {
            "_options": self._options,
            "_planner": None,
            "_group": None,
            "_start_refused": None,
        }

    def initialOffset(self) -> Json:
        """Spark also asks when it repeats the first batch, whose own end says where it began.

        By then the options may not fit the topics any more. So it is an error only once a batch
        is to begin there.
        """
        self._start_refused = None
        try:
            return self._planning().initial().to_json()
        except (PlanError, UnknownTopic) as error:
            self._start_refused = error
            return StreamOffset(first_start={}).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().stop_at_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands this back, or ReadAllAvailable where the trigger allows no limit."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begin = StreamOffset.from_json(start)
        if begin.is_initial and self._start_refused is not None:
            raise self._start_refused
        # Spark calls `commit` only when a later batch is planned, and so never for the last one;
        # but whatever it starts from here is processed.
        self._show_progress(begin)
        planning = self._planning(was_reached=not begin.is_initial)
        end = planning.end(begin, limited=not isinstance(limit, ReadAllAvailable))
        # Spark compares texts, so that nothing new must be said in the very same words.
        return start if end == begin else end.to_json()

    def reportLatestOffset(self) -> Json | None:
        latest = None if self._planner is None else self._planner.latest
        return None if latest is None else dict(to_json(latest))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        planning = self._planning(was_reached=True)
        return topic_ranges(
            planning.ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        )

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, TopicRange)
        return scan(partition, self._options)

    def commit(self, end: Json) -> None:
        self._show_progress(StreamOffset.from_json(end))

    def stop(self) -> None:
        for part in (self._planner, self._group):
            if part is not None:
                part.close()

    def _planning(self, *, was_reached: bool = False) -> StreamPlanner:
        """A query that goes on from its checkpoint has found the brokers in an earlier run."""
        if self._planner is None:
            log_notes(self._options.notes)
            wire = self._options.wire
            cluster = WireCluster(wire.once_reached() if was_reached else wire)
            self._planner = StreamPlanner(cluster, self._options)
        return self._planner

    def _show_progress(self, reached: StreamOffset) -> None:
        if self._options.commit_group is None or reached.ends is None:
            return
        if self._group is None:
            cluster = WireCluster(self._options.wire.hurried(COMMIT_TIMEOUT_S))
            self._group = GroupProgress(cluster, self._options.commit_group)
        self._group.reached(reached.ends)
