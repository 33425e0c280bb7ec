"""The position of a stream as Spark keeps it in the checkpoint.

An end of a micro-batch has the shape of Spark's Kafka source, {"orders": {"0": 5}}. What that shape
can't say is where the first batch began: Spark keeps only ends, and asks the source for the start
again when it must repeat the first batch, by which time `latest` is somewhere else. So the end of
the first batch also carries its start, under a key that can't be the name of a topic. A position
that has a start and no end is the one before the first batch. Spark compares positions by their
text, so equal ones are always written alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.ids import TopicPartition
from penstock.spark.planning.offsets import from_json, to_json

START_KEY = "@start"

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    # Of each partition the first offset that has not been read; None before the first batch.
    ends: Offsets | None = None
    # Where the first batch begins; None after a later one.
    first_start: Offsets | None = None

    def __post_init__(self) -> None:
        assert self.ends is not None or self.first_start is not None

    @property
    def is_initial(self) -> bool:
        return self.ends is None

    @property
    def position(self) -> Offsets:
        """Where reading goes on from here."""
        found = self.first_start if self.ends is None else self.ends
        assert found is not None
        return found

    def to_json(self) -> dict[str, Any]:
        json: dict[str, Any] = {}
        if self.first_start is not None:
            json[START_KEY] = to_json(self.first_start)
        return json if self.ends is None else json | to_json(self.ends)

    @staticmethod
    def from_json(json: Mapping[str, Any]) -> "StreamOffset":
        start = json.get(START_KEY)
        first_start = None if start is None else from_json(start)
        ends = from_json({topic: each for topic, each in json.items() if topic != START_KEY})
        # A first batch without any topic looks like the position before it, and means the same.
        if first_start is not None and not ends:
            return StreamOffset(first_start=first_start)
        return StreamOffset(ends=ends, first_start=first_start)
