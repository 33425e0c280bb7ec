"""Offsets as Spark keeps them in a checkpoint: the JSON of its Kafka source, in one fixed order.

Spark compares offsets by their text, so equal offsets must always give the same one.
"""

from collections.abc import Mapping
from typing import Any

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.planning.errors import PlanError

_FORM = '{"topic": {"0": 5}}'

Offsets = Mapping[TopicPartition, int]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 5}}`, topics by name and partitions by number."""
    json: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        by_partition = json.setdefault(partition.topic, {})
        by_partition[str(partition.partition)] = offsets[partition]
    return json


def from_json(json: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The offsets again; raises PlanError on any other form."""
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in json.items():
        if not isinstance(by_partition, Mapping):
            raise _no_offsets(json)
        for partition, offset in by_partition.items():
            if not _is_partition(partition) or not _is_offset(offset):
                raise _no_offsets(json)
            offsets[TopicPartition(TopicName(topic), PartitionIndex(int(partition)))] = offset
    return offsets


def _is_partition(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit()


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _no_offsets(json: Mapping[str, Any]) -> PlanError:
    return PlanError(
        f"The checkpoint must hold offsets in the form {_FORM}, but holds {dict(json)}."
    )
