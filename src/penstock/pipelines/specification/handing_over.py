"""Finds flows that hand over to others: one writes a topic or table that the other one reads."""

import re
from collections.abc import Mapping

from penstock.pipelines.specification.model import (
    Flow,
    LakeSink,
    Source,
    TableSource,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.specification.ordering import upstream_of
from penstock.pipelines.specification.references import Declared, dataset_needs


def flow_needs(declared: Declared) -> dict[str, list[str]]:
    """For each flow the flows that write what it reads."""
    needs = dataset_needs(declared)
    sides = declared.side_datasets
    return {
        flow.name: [
            other.name
            for other in declared.flows
            if other.name != flow.name
            and any(reads(source, other) for source in _sources(flow, declared, needs, sides))
        ]
        for flow in declared.flows
    }


def reads(source: Source, flow: Flow) -> bool:
    """Whether a source reads what a flow writes."""
    sink = flow.sink
    if isinstance(source, TopicSource) and isinstance(sink, TopicSink):
        return _has_topic(source, sink.options.get("topic", ""))
    if isinstance(source, TableSource) and isinstance(sink, LakeSink):
        return source.path == sink.path
    return False


def _sources(
    flow: Flow, declared: Declared, needs: Mapping[str, list[str]], sides: Mapping[str, str]
) -> list[Source]:
    reached = set(upstream_of(sides.get(flow.input, flow.input), needs))
    return [source for source in declared.sources if source.name in reached]


def _has_topic(source: TopicSource, topic: str) -> bool:
    options = {name.lower(): value for name, value in source.options.items()}
    if "subscribe" in options:
        return topic in [name.strip() for name in options["subscribe"].split(",")]
    if "subscribepattern" in options:
        return bool(topic) and re.search(options["subscribepattern"], topic) is not None
    return f'"{topic}"' in options.get("assign", "")
