"""A plain SVG picture of some lines over a few places, both axes logarithmic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, TOP, RIGHT, BOTTOM = 70, 50, 210, 50
# Two lines, the whole and the dashed, share a colour: they belong to the same broker.
COLOURS = ("#2f74c0", "#2b8a4b", "#c77700", "#7b8794")
LEAST = 0.01
LABEL_GAP = 15

_STYLE = """\
text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; font-size: 12px; }
.page { fill: #ffffff; } text { fill: #52606d; } .title { font-size: 16px; fill: #1f2933; }
.grid { stroke: #d9dee4; } .line { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
.page { fill: #14181d; } text { fill: #9aa5b1; } .title { fill: #e4e7eb; }
.grid { stroke: #333b44; }
}"""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


class _Axis:
    """Maps values to places between two ends."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        logs = [math.log10(max(value, LEAST)) for value in values]
        self._low, self._high = min(logs), max(logs)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        span = (self._high - self._low) or 1.0
        share = (math.log10(max(value, LEAST)) - self._low) / span
        return self._begin + share * (self._end - self._begin)


def line_chart(*, title: str, across: str, upward: str, lines: Sequence[Line]) -> str:
    """The whole file."""
    places = sorted({x for line in lines for x, _ in line.points})
    heights = [max(y, LEAST) for line in lines for _, y in line.points]
    powers = range(math.floor(math.log10(min(heights))), math.ceil(math.log10(max(heights))) + 1)
    steps = [10.0**power for power in powers]
    x_axis = _Axis(places, LEFT, WIDTH - RIGHT)
    y_axis = _Axis([*steps, *heights], HEIGHT - BOTTOM, TOP)
    parts = [f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>']
    for step in steps:
        y = y_axis.at(step)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{step:g}</text>')
    for place in places:
        x = x_axis.at(place)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{place:,.0f}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>'
    )
    parts.append(f'<text x="{LEFT - 50}" y="{TOP - 8}">{escape(upward)}</text>')
    labels = _spread([y_axis.at(line.points[-1][1]) for line in lines])
    for number, (line, label_y) in enumerate(zip(lines, labels, strict=True)):
        parts += _drawn(line, COLOURS[number // 2 % len(COLOURS)], x_axis, y_axis, label_y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _drawn(line: Line, colour: str, x_axis: _Axis, y_axis: _Axis, label_y: float) -> list[str]:
    points = [(x_axis.at(x), y_axis.at(y)) for x, y in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    value = f"{line.points[-1][1]:.3g}"
    return [
        f'<path class="line" stroke="{colour}"{dashes} d="M{path}"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points),
        f'<text x="{WIDTH - RIGHT + 10}" y="{label_y + 4:.1f}" style="fill:{colour}">'
        f"{escape(line.name)}: {value}</text>",
    ]


def _spread(heights: Sequence[float]) -> list[float]:
    """Moved apart where names would lie on each other, from the top down."""
    places = list(heights)
    below = -math.inf
    for index in sorted(range(len(places)), key=lambda each: places[each]):
        places[index] = max(places[index], below + LABEL_GAP)
        below = places[index]
    return places
