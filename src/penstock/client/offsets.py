"""Offsets of partitions, and the positions that people name: the end, an hour ago, the last ten."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from penstock.client.asking import Asking
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is kept."""


@dataclass(frozen=True, slots=True)
class End:
    """Behind the last record."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """This many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than this time; the end if there is none."""

    timestamp_ms: int


# librdkafka's marks for the two ends of a partition.
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Position = Beginning | End | AtOffset | Last | AtTime


class Offsets:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list(partitions, _EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
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
