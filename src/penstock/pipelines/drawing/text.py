"""Draws the graph of a pipeline as text: a tree from each source to where its rows end."""

from collections.abc import Iterator

from penstock.pipelines.specification.graph import Graph, Node, NodeKind

_HEADS = {NodeKind.FLOW: "─> "}


def text_of(graph: Graph) -> str:
    """Lines that end with a line break."""
    return "".join(f"{line.rstrip()}\n" for line in _Tree(graph).lines())


class _Tree:
    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.identity: node for node in graph.nodes}
        self._inputs: dict[str, list[str]] = {identity: [] for identity in self._nodes}
        self._outputs: dict[str, list[str]] = {identity: [] for identity in self._nodes}
        self._readers: dict[str, list[str]] = {identity: [] for identity in self._nodes}
        for edge in graph.edges:
            if edge.is_handed_over:
                self._readers[edge.start].append(self._nodes[edge.end].name)
            else:
                self._inputs[edge.end].append(edge.start)
                self._outputs[edge.start].append(edge.end)
        self._drawn: set[str] = set()

    def lines(self) -> Iterator[str]:
        roots = [identity for identity in self._nodes if not self._inputs[identity]]
        for number, root in enumerate(roots):
            if number:
                yield ""
            yield self._label(root, came_from=None)
            yield from self._below(root, "")

    def _below(self, identity: str, indent: str) -> Iterator[str]:
        """Goes down by itself: a chain of steps is short."""
        self._drawn.add(identity)
        outputs = self._outputs[identity]
        for number, output in enumerate(outputs, 1):
            is_last = number == len(outputs)
            head = _HEADS.get(self._nodes[output].kind, "─ ")
            branch = "└" if is_last else "├"
            if output in self._drawn:
                yield f"{indent}{branch}{head}{self._nodes[output].name}, as above"
                continue
            yield f"{indent}{branch}{head}{self._label(output, came_from=identity)}"
            yield from self._below(output, indent + ("   " if is_last else "│  "))

    def _label(self, identity: str, *, came_from: str | None) -> str:
        node: Node = self._nodes[identity]
        parts = list(node.details)
        others = [self._nodes[one].name for one in self._inputs[identity] if one != came_from]
        if others:
            parts.append(f"with {' and '.join(others)}")
        if self._readers[identity]:
            parts.append(f"read by {' and '.join(self._readers[identity])}")
        return f"{node.name}  ({'; '.join(parts)})" if parts else node.name
