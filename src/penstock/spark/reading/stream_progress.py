"""How far queries over topics have come, from what Spark itself reports of their progress.

Spark's own Kafka source reports how far it is behind as metrics. A source in Python can't report
metrics, but it does report the ends of its topics, beside the offsets that the batch came to.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.spark.reading.stream_offsets import START_KEY

Offsets = dict[str, dict[str, int]]


def offsets_behind(progress: Any) -> Offsets:
    """By topic and partition, how many offsets the last batch of a query left to read.

    `progress` is `query.lastProgress`, a progress of a listener, or either as JSON or a map.
    Without one, and where a batch of an earlier run was repeated, nothing is known yet.
    """
    if isinstance(progress, str):
        progress = json.loads(progress)
    if progress is None:
        return {}
    return positions(progress["sources"])[0]


def positions(sources: Iterable[Any]) -> tuple[Offsets, Offsets]:
    """What is left to read and where reading goes on, of all topics that a query reads.

    Sources of other kinds have other positions, and are left out.
    """
    behind: Offsets = {}
    ends: Offsets = {}
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        ends.update(end)
        for topic, partitions in latest.items():
            read = end.get(topic, {})
            behind[topic] = {
                index: max(0, at - read.get(index, 0)) for index, at in partitions.items()
            }
    return behind, ends


def _offsets(position: Any) -> Offsets:
    """Empty for a position that is not in the shape of a topic's."""
    if isinstance(position, str):
        try:
            position = json.loads(position)
        except ValueError:
            return {}
    if not isinstance(position, Mapping):
        return {}
    found = {topic: each for topic, each in position.items() if topic != START_KEY}
    is_ours = all(
        isinstance(each, Mapping) and all(isinstance(offset, int) for offset in each.values())
        for each in found.values()
    )
    return {topic: dict(each) for topic, each in found.items()} if is_ours else {}
