"""The partitions of a running query, of which some come and some go."""

from collections.abc import Callable

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.model.ids import TopicPartition
from penstock.spark.options.reading import ReadOptions
from penstock.spark.reading.discovery import (
    remaining_partitions,
    selected_partitions,
    topics_named,
)
from penstock.spark.reading.stream_offsets import Offsets

# Spark asks for the latest offsets up to a hundred times a second; new partitions may take longer.
DISCOVERY_INTERVAL_S = 0.5
# A new leader may not know yet how far its predecessor had come, which looks like a loss.
LOOKS_MAX = 4
LOOK_PAUSE_S = 0.5


class LivePartitions:
    def __init__(
        self,
        cluster: WireCluster,
        options: ReadOptions,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._pause = pause
        self._partitions: list[TopicPartition] = []
        self._is_stale_at: float | None = None
        # Topics that were there once in this run: if they are missing, they are not misspelt.
        self._seen: set[str] = set()

    def all(self) -> list[TopicPartition]:
        """A topic that was named and does not exist is an error."""
        return self._remember(selected_partitions(self._cluster, self._options.selection))

    def existing(self) -> list[TopicPartition]:
        """The same, but topics that are gone are not an error if the query may lose data."""
        if self._options.fail_on_data_loss:
            return self.all()
        selection = self._options.selection
        return self._remember(
            remaining_partitions(self._cluster, selection, topics_named(selection))
        )

    def latest(self, position: Offsets) -> Offsets:
        """The ends of all partitions there are now, of which `position` says what was read.

        What looks like a loss is looked at again before it is believed, unless losses are allowed.
        """
        looks = LOOKS_MAX
        while True:
            looks -= 1
            try:
                latest = self._cluster.latest(self._remaining(position))
            except UnknownTopic:
                # It went away just now; if it must be there, the next look says so.
                if looks == 0:
                    raise
            else:
                if looks == 0 or not _is_suspect(position, latest):
                    return latest
            self._is_stale_at = None
            self._pause(LOOK_PAUSE_S)

    def _remaining(self, position: Offsets) -> list[TopicPartition]:
        if self._is_stale_at is not None and self._clock() < self._is_stale_at:
            return self._partitions
        self._seen.update(str(partition.topic) for partition in position)
        return self._remember(
            remaining_partitions(self._cluster, self._options.selection, self._seen)
        )

    def _remember(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        self._partitions = partitions
        interval_s = max(self._options.partitions_ttl_s, DISCOVERY_INTERVAL_S)
        self._is_stale_at = self._clock() + interval_s
        return partitions


def _is_suspect(position: Offsets, latest: Offsets) -> bool:
    return any(p not in latest or latest[p] < offset for p, offset in position.items())
