"""The JSON forms in which options name partitions."""

import json
from typing import Any

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import INT_MAX, LONG_MAX, shown

_OFFSETS_EXAMPLE = '{"orders": {"0": 23, "1": -1}, "clicks": {"0": -2}}'
_TIMESTAMPS_EXAMPLE = '{"orders": {"0": 1700000000000, "1": 1700000000000}}'
_PARTITIONS_EXAMPLE = '{"orders": [0, 1], "clicks": [2]}'


class _Unfit(ValueError):
    """The text is not JSON of the form wanted; the caller knows the form."""


def partition_offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """Offsets by partition, where -1 means the latest and -2 the earliest."""
    try:
        return _numbers_by_partition(text, least=-2)
    except (ValueError, RecursionError):
        raise _unfit(name, _OFFSETS_EXAMPLE, text) from None


def partition_timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    """Milliseconds since 1970 by partition."""
    try:
        return _numbers_by_partition(text, least=0)
    except (ValueError, RecursionError):
        raise _unfit(name, _TIMESTAMPS_EXAMPLE, text) from None


def partitions_by_topic(name: str, text: str) -> dict[str, tuple[int, ...]]:
    try:
        parsed = _parsed_object(text)
        chosen = {topic: _partition_list(value) for topic, value in parsed.items()}
    except (ValueError, RecursionError):
        raise _unfit(name, _PARTITIONS_EXAMPLE, text) from None
    return {topic: partitions for topic, partitions in chosen.items() if partitions}


def _unfit(name: str, example: str, text: str) -> OptionError:
    return OptionError(f"The option {name} must be JSON such as {example}, not {shown(text)}.")


def _numbers_by_partition(text: str, *, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _parsed_object(text).items():
        if not isinstance(numbers, dict):
            raise _Unfit
        for partition, number in numbers.items():
            if not (partition.isascii() and partition.isdigit()):
                raise _Unfit
            where = TopicPartition(TopicName(topic), _partition_index(int(partition)))
            # "1" and "01" are different keys to JSON, but the same partition.
            if where in found:
                raise _Unfit
            found[where] = _number_within(number, least, LONG_MAX)
    return found


def _partition_list(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _Unfit
    return tuple(sorted({_partition_index(item) for item in value}))


def _partition_index(value: Any) -> PartitionIndex:
    return PartitionIndex(_number_within(value, 0, INT_MAX))


def _number_within(value: Any, least: int, most: int) -> int:
    # JSON's true and false are whole numbers to Python, but not to anybody else.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _Unfit
    return value


def _parsed_object(text: str) -> dict[str, Any]:
    parsed = json.loads(text, object_pairs_hook=_without_duplicates)
    if not isinstance(parsed, dict):
        raise _Unfit
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # A topic named twice would silently lose what was said of it first.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unfit
    return found
