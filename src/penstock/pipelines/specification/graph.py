"""A pipeline as nodes and edges, each node with the words that a picture shows of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.pipelines.specification.describing import (
    flow_details,
    side_details,
    source_details,
    step_details,
)
from penstock.pipelines.specification.handing_over import reads
from penstock.pipelines.specification.model import Pipeline
from penstock.pipelines.specification.references import Declared


class NodeKind(StrEnum):
    """What a node stands for."""

    SOURCE = "source"
    STEP = "step"
    SIDE = "side"
    FLOW = "flow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A dataset, or a flow together with its sink."""

    identity: str
    """A flow may have the name of a dataset, so the name alone does not say which is meant."""
    kind: NodeKind
    name: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows go from one node to another."""

    start: str
    end: str
    is_handed_over: bool = False
    """By way of a topic or a table: a flow writes what a source reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in an order in which each comes after its inputs, apart from what is handed over."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, identity: str) -> Node:
        return next(node for node in self.nodes if node.identity == identity)


def graph_of(pipeline: Pipeline) -> Graph:
    """The graph of a pipeline; what is beside a dataset is in it when something takes it."""
    nodes = [*_datasets(pipeline), *_flows(pipeline)]
    edges = [*_edges(pipeline), *_handed_over(pipeline)]
    return Graph(name=pipeline.name, nodes=tuple(nodes), edges=tuple(edges))


def _datasets(pipeline: Pipeline) -> Iterator[Node]:
    sides = _used_sides(pipeline)
    described = [
        (source.name, NodeKind.SOURCE, source_details(source, pipeline))
        for source in pipeline.sources.values()
    ]
    described += [
        (step.name, NodeKind.STEP, step_details(step)) for step in pipeline.steps.values()
    ]
    for name, kind, details in described:
        yield Node(identity=_dataset(name), kind=kind, name=name, details=details)
        for side in [side for side, owner in sides.items() if owner == name]:
            yield Node(
                identity=_dataset(side),
                kind=NodeKind.SIDE,
                name=side,
                details=side_details(side),
            )


def _flows(pipeline: Pipeline) -> Iterator[Node]:
    for flow in pipeline.flows.values():
        details = flow_details(flow, pipeline)
        yield Node(identity=_flow(flow.name), kind=NodeKind.FLOW, name=flow.name, details=details)


def _edges(pipeline: Pipeline) -> Iterator[Edge]:
    for side, owner in _used_sides(pipeline).items():
        yield Edge(start=_dataset(owner), end=_dataset(side))
    for step in pipeline.steps.values():
        for name in dict.fromkeys(step.inputs):
            yield Edge(start=_dataset(name), end=_dataset(step.name))
    for flow in pipeline.flows.values():
        yield Edge(start=_dataset(flow.input), end=_flow(flow.name))


def _handed_over(pipeline: Pipeline) -> Iterator[Edge]:
    for flow in pipeline.flows.values():
        for source in pipeline.sources.values():
            if reads(source, flow):
                yield Edge(start=_flow(flow.name), end=_dataset(source.name), is_handed_over=True)


def _used_sides(pipeline: Pipeline) -> dict[str, str]:
    declared = Declared(
        sources=tuple(pipeline.sources.values()), steps=tuple(pipeline.steps.values()), flows=()
    )
    used = {name for step in pipeline.steps.values() for name in step.inputs}
    used |= {flow.input for flow in pipeline.flows.values()}
    return {side: owner for side, owner in declared.side_datasets.items() if side in used}


def _dataset(name: str) -> str:
    return f"dataset {name}"


def _flow(name: str) -> str:
    return f"flow {name}"
