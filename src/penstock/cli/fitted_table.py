"""Tables that fit the width of a terminal: one line for each row, whatever the width.

Columns that are needed are there in every terminal of usual width, and their texts are shortened
where they must be. Others come in as far as there is room for them, the most important first.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.output import Cell, print_table

if TYPE_CHECKING:
    from rich.table import Table

# Signs that every terminal has.
ELLIPSIS = "..."
GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    is_number: bool = False
    rank: int = 0
    """0 is needed; of the others the lowest comes first."""
    width_min: int | None = None
    """A text may be shortened to that; None: never."""
    keeps_end: bool = False
    """Whether a text that is too long is shortened in its middle."""


def widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> Mapping[int, int]:
    """How wide each column is that is shown, by its place; one that is empty only if needed."""
    whole = {
        place: max(len(column.name), *(len(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
        if column.rank == 0 or any(row[place] for row in rows)
    }
    shown = {place: size for place, size in whole.items() if columns[place].rank == 0}
    _shrink(shown, columns, width)
    for place in sorted(whole.keys() - shown.keys(), key=lambda each: columns[each].rank):
        if _total(shown.values()) + GAP + whole[place] > width:
            break
        shown[place] = whole[place]
    return dict(sorted(shown.items()))


def _shrink(shown: dict[int, int], columns: Sequence[Column], width: int) -> None:
    """Texts give way, the first one first; where that is not enough, the last columns go."""
    for place, size in list(shown.items()):
        least = columns[place].width_min
        excess = _total(shown.values()) - width
        if least is not None and excess > 0:
            shown[place] = max(min(size, least), size - excess)
    while len(shown) > 1 and _total(shown.values()) > width:
        shown.popitem()


def _total(sizes: Collection[int]) -> int:
    return sum(sizes) + GAP * (len(sizes) - 1)


def shortened(text: str, width: int, *, keeps_end: bool = False) -> str:
    """The text, or as much of it as there is room for, with a sign that something is missing."""
    if len(text) <= width:
        return text
    room = width - len(ELLIPSIS)
    if room < 1:
        return text[: max(0, width)]
    end = room // 2 if keeps_end else 0
    return text[: room - end] + ELLIPSIS + text[len(text) - end :]


def fitted_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    styles: Mapping[tuple[int, int], str] | None = None,
) -> "Table":
    """A header and one line for each row; `styles` by row and column."""
    from rich.table import Table
    from rich.text import Text

    shown = widths(columns, rows, width)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for place, size in shown.items():
        table.add_column(
            shortened(columns[place].name, size),
            justify="right" if columns[place].is_number else "left",
            width=size,
            no_wrap=True,
        )
    for number, row in enumerate(rows):
        texts = (
            Text(
                shortened(row[place], size, keeps_end=columns[place].keeps_end),
                style=(styles or {}).get((number, place), ""),
            )
            for place, size in shown.items()
        )
        table.add_row(*texts)
    return table


def print_fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """On a terminal what fits; elsewhere all columns whole, which `awk` can split."""
    if not sys.stdout.isatty():
        print_table([column.name for column in columns], rows)
        return
    from rich.console import Console

    console = Console(file=sys.stdout, markup=False, highlight=False)
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    console.print(fitted_table(columns, cells, console.width))
