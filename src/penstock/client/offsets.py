"""Offsets of partitions, and what positions mean in them."""

from collections.abc import Callable, Iterable

import confluent_kafka
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from penstock.client.asking import Asking
from penstock.client.positions import AtOffset, AtTime, Beginning, End, Last, Position
from penstock.model.ids import TopicPartition

# librdkafka's marks for the two ends of a partition.
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Offsets:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are kept."""
        return self._list(partitions, _EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last records."""
        return self._list(partitions, _LATEST)

    def resolve(
        self, position: Position, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset that `position` means in each partition, kept within what is there."""
        wanted = list(partitions)
        match position:
            case Beginning():
                return self.earliest(wanted)
            case End():
                return self.latest(wanted)
            case AtTime(timestamp_ms):
                return self._at_time(wanted, timestamp_ms)
            case AtOffset(offset):
                return self._within(wanted, lambda end: offset)
            case Last(count):
                return self._within(wanted, lambda end: end - count)

    def clamp(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The same offsets, moved to the nearest one that can be read."""
        starts, ends = self.earliest(offsets), self.latest(offsets)
        return {
            partition: min(max(offset, starts[partition]), ends[partition])
            for partition, offset in offsets.items()
        }

    def trim(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records before these offsets, for everybody; returns where logs now begin."""
        wanted = {
            confluent_kafka.TopicPartition(*one, offset): one for one, offset in offsets.items()
        }
        if not wanted:
            return {}
        timeout_s = self._asking.timeout_s
        futures = self._asking.client.delete_records(
            list(wanted), request_timeout=timeout_s, operation_timeout=timeout_s
        )
        return {
            wanted[asked]: self._asking.answer(future, f"topic {asked.topic}").low_watermark
            for asked, future in futures.items()
        }

    def _within(
        self, partitions: list[TopicPartition], choose: Callable[[int], int]
    ) -> dict[TopicPartition, int]:
        starts, ends = self.earliest(partitions), self.latest(partitions)
        return {one: min(max(choose(ends[one]), starts[one]), ends[one]) for one in partitions}

    def _at_time(
        self, partitions: list[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        found = self._list(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        missing = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.latest(missing) if missing else {})

    def _list(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        wanted = {confluent_kafka.TopicPartition(*one): one for one in partitions}
        if not wanted:
            return {}
        futures = self._asking.client.list_offsets(
            dict.fromkeys(wanted, spec), request_timeout=self._asking.timeout_s
        )
        return {
            wanted[asked]: self._asking.answer(future, f"topic {asked.topic}").offset
            for asked, future in futures.items()
        }
