"""A query's progress as the offsets of a consumer group, where every Kafka tool looks for lag."""

import logging
import time
from collections.abc import Callable

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.model.ids import TopicPartition
from penstock.spark.reading.stream_offsets import Offsets

logger = logging.getLogger(__name__)

# A commit only shows progress, so that the query waits for it no longer than this.
COMMIT_TIMEOUT_S = 5.0
# After trouble the query runs on without commits for so long.
PAUSE_AFTER_TROUBLE_S = 10.0
COMMIT_METADATA = "spark"


class GroupProgress:
    """Commits what a query has finished. Trouble is logged: Spark's checkpoint is what counts."""

    def __init__(
        self, cluster: WireCluster, group: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._paused_until = clock()
        self._group = group
        self._committed: dict[TopicPartition, int] = {}
        self._trouble = ""

    def close(self) -> None:
        self._cluster.close()

    def reached(self, ends: Offsets) -> None:
        """All records before `ends` have been processed."""
        changed = {
            partition: offset
            for partition, offset in ends.items()
            if self._committed.get(partition) != offset
        }
        if not changed or self._clock() < self._paused_until:
            return
        try:
            self._cluster.commit(self._group, changed, COMMIT_METADATA)
        except ClientError as error:
            self._log_once(str(error))
            self._paused_until = self._clock() + PAUSE_AFTER_TROUBLE_S
            return
        self._committed.update(changed)
        self._trouble = ""

    def _log_once(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning(
                "The query's progress could not be committed to group %s: %s", self._group, trouble
            )
        self._trouble = trouble
