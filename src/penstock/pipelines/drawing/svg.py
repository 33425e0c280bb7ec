"""Draws the graph of a pipeline as an SVG picture, which any browser shows."""

from html import escape

from penstock.pipelines.drawing.layers import layers_of
from penstock.pipelines.drawing.placing import Box, boxes_of
from penstock.pipelines.specification.graph import Graph, Node

MARGIN = 24
TITLE_HEIGHT = 40
TITLE_SIZE = 15
DETAIL_SIZE = 12
LINE_HEIGHT = 16
LANE_GAP = 14
_PADDING = 12
_BOX_WIDTH_MIN = 130
_DETAIL_LENGTH_MAX = 42
# Wider than most letters of a sans-serif font, as a share of its size, so that text fits.
_LETTER_WIDTH = 0.58
_BOLD_LETTER_WIDTH = 0.66

_STYLE = """\
text { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", sans-serif; }
.page { fill: #ffffff; }
.title { font-size: 18px; font-weight: 600; fill: #1f2933; }
.name { font-size: 15px; font-weight: 600; fill: #1f2933; }
.detail { font-size: 12px; fill: #52606d; }
.box { stroke-width: 1.5; }
.source .box { fill: #e8f1fb; stroke: #2f74c0; }
.step .box { fill: #f4f5f7; stroke: #7b8794; }
.side .box { fill: #fdf1e3; stroke: #c77700; stroke-dasharray: 5 3; }
.flow .box { fill: #e7f6ec; stroke: #2b8a4b; }
.edge { fill: none; stroke: #7b8794; stroke-width: 1.5; }
.handed { stroke-dasharray: 4 4; }
.tip { fill: #7b8794; }
@media (prefers-color-scheme: dark) {
.page { fill: #14181d; }
.title, .name { fill: #e4e7eb; }
.detail { fill: #9aa5b1; }
.source .box { fill: #14283f; }
.step .box { fill: #22272e; }
.side .box { fill: #38260d; }
.flow .box { fill: #12301d; }
}
"""


def svg_of(graph: Graph) -> str:
    """The whole file."""
    layers = layers_of(graph)
    sizes = {node.identity: _size(node) for node in graph.nodes}
    boxes = {
        name: Box(box.left + MARGIN, box.top + MARGIN + TITLE_HEIGHT, box.width, box.height)
        for name, box in boxes_of(layers, sizes).items()
    }
    handed = [(edge.start, edge.end) for edge in graph.edges if edge.is_handed_over]
    # A topic that is handed over runs back below everything, so it needs room at both sides.
    if handed:
        shift = (len(handed) + 1) * LANE_GAP
        boxes = {
            name: Box(box.left + shift, box.top, box.width, box.height)
            for name, box in boxes.items()
        }
    edges = [_edge(path, boxes) for path in layers.paths.values()]
    lowest = max((box.bottom for box in boxes.values()), default=0.0)
    edges += [
        _handed_over(boxes[start], boxes[end], lowest, lane)
        for lane, (start, end) in enumerate(handed, 1)
    ]
    nodes = [_node(node, boxes[node.identity]) for node in graph.nodes]
    return _page(graph, [*edges, *nodes], boxes, lanes=len(handed))


def _page(graph: Graph, drawn: list[str], boxes: dict[str, Box], *, lanes: int) -> str:
    side = MARGIN + (lanes + 1) * LANE_GAP * (lanes > 0)
    title_width = len(graph.name) * 18 * _BOLD_LETTER_WIDTH + 2 * MARGIN
    width = max(title_width, max((box.right for box in boxes.values()), default=0.0) + side)
    lowest = max((box.bottom for box in boxes.values()), default=float(TITLE_HEIGHT))
    height = lowest + MARGIN + (lanes + 1) * LANE_GAP * (lanes > 0)
    name = escape(graph.name)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Pipeline {name}">'
    )
    body = [
        head,
        f"<title>Pipeline {name}</title>",
        f"<style>\n{_STYLE}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 14}">{name}</text>',
        *drawn,
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _size(node: Node) -> tuple[float, float]:
    widths = [len(node.name) * TITLE_SIZE * _BOLD_LETTER_WIDTH]
    widths += [len(_cut(detail)) * DETAIL_SIZE * _LETTER_WIDTH for detail in node.details]
    height = 2 * _PADDING + TITLE_SIZE + LINE_HEIGHT * len(node.details)
    return max(_BOX_WIDTH_MIN, max(widths) + 2 * _PADDING), height


def _cut(text: str) -> str:
    """A path is known by its end, so the beginning is left out."""
    if len(text) <= _DETAIL_LENGTH_MAX:
        return text
    first, _, rest = text.partition(" ")
    return f"{first} …{rest[-(_DETAIL_LENGTH_MAX - len(first) - 2) :]}"


def _node(node: Node, box: Box) -> str:
    full = escape("\n".join([node.name, *node.details]))
    left, line = box.left + _PADDING, box.top + _PADDING + TITLE_SIZE - 3
    parts = [
        f'<g class="{node.kind}"><title>{full}</title>',
        f'<rect class="box" x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="7"/>',
        f'<text class="name" x="{left:.1f}" y="{line:.1f}">{escape(node.name)}</text>',
    ]
    for detail in node.details:
        line += LINE_HEIGHT
        shown = escape(_cut(detail))
        parts.append(f'<text class="detail" x="{left:.1f}" y="{line:.1f}">{shown}</text>')
    return "".join([*parts, "</g>"])


def _edge(path: tuple[str, ...], boxes: dict[str, Box]) -> str:
    """Bends between layers, and runs straight through a layer that it only passes."""
    first = boxes[path[0]]
    x, y = first.right, first.middle
    drawn = [f"M{x:.1f},{y:.1f}"]
    for name in path[1:]:
        box = boxes[name]
        bend = (box.left - x) / 2
        end_x = box.left - (6 if name == path[-1] else 0)
        drawn.append(
            f"C{x + bend:.1f},{y:.1f} {end_x - bend:.1f},{box.middle:.1f} "
            f"{end_x:.1f},{box.middle:.1f}"
        )
        x, y = box.right, box.middle
        if name != path[-1]:
            drawn.append(f"H{x:.1f}")
    last = boxes[path[-1]]
    return f'<path class="edge" d="{" ".join(drawn)}"/>{_tip(last.left, last.middle)}'


def _handed_over(start: Box, end: Box, lowest: float, lane: int) -> str:
    right, left = start.right + lane * LANE_GAP, end.left - lane * LANE_GAP - 6
    below = lowest + lane * LANE_GAP
    # A little off the middle, where another edge may arrive.
    leave, arrive = start.middle + 5, end.middle
    way = (
        f"M{start.right:.1f},{leave:.1f} H{right:.1f} V{below:.1f} H{left:.1f} "
        f"V{arrive:.1f} H{end.left - 6:.1f}"
    )
    return f'<path class="edge handed" d="{way}"/>{_tip(end.left, arrive)}'


def _tip(x: float, y: float) -> str:
    corners = f"{x:.1f},{y:.1f} {x - 8:.1f},{y - 4:.1f} {x - 8:.1f},{y + 4:.1f}"
    return f'<polygon class="tip" points="{corners}"/>'
