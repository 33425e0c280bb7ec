"""Prints results: tables for people, columns for pipes, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

Cell = str | int | None
NOTHING = "-"


def print_json(content: object) -> None:
    json.dump(content, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, err: bool = False
) -> None:
    """A drawn table on a terminal, aligned columns that `awk` can split elsewhere."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [_is_numeric(cells, index) for index in range(len(columns))]
    sink = sys.stderr if err else sys.stdout
    draw = _draw if sink.isatty() else _align
    draw(columns, cells, numeric, sink)


def counted(number: int, noun: str) -> str:
    """A number with its noun, as in "1 partition" and "2 partitions"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _draw(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], sink: TextIO
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for column, is_number in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    # Markup is off because topics and settings may hold brackets.
    Console(file=sink, markup=False, highlight=False).print(table)


def _align(
    columns: Sequence[str], cells: list[list[str]], numeric: list[bool], sink: TextIO
) -> None:
    # An empty cell would shift the columns of anyone who splits at blanks.
    lines = [[name.upper() for name in columns]]
    lines += [[cell or NOTHING for cell in row] for row in cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        sink.write("  ".join(padded).rstrip() + "\n")


def _is_numeric(cells: list[list[str]], index: int) -> bool:
    column = [row[index] for row in cells if row[index]]
    return bool(column) and all(cell.lstrip("-").replace(".", "", 1).isdecimal() for cell in column)
