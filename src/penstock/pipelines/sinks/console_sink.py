"""A flow onto the terminal: the first rows of each micro-batch as a table of text."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.counting import counting
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

CELL_WIDTH_MAX = 40
_PLACE = "penstock place"


def print_at_once(text: str) -> None:
    """The reader of a pipe wants to see a batch when it is there, not when a buffer is full."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise SinkRefused("The reader of the console's rows has gone.") from None


class ConsoleWriter:
    """`show` gets one text per micro-batch that has rows, so that a live screen can take it."""

    def __init__(self, rows: int = 20, show: Callable[[str], None] = print_at_once) -> None:
        self._rows = rows
        self._show = show

    def prepare(self, schema: "StructType") -> None:
        if self._rows < 1:
            raise SinkRefused(f"The console must show at least one row, not {self._rows}.")

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        observed, count = counting(frame)
        rows = _first(observed, self._rows).collect()
        total = count()
        if total:
            self._show(batch_text(epoch, frame.columns, rows, total))
        return Written(rows=total)

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        """What was shown is forgotten."""
        return frozenset()

    def clear(self) -> None:
        """There is nothing to remove from a terminal."""


def _first(frame: "DataFrame", rows: int) -> "DataFrame":
    """The first rows, though all are computed: `limit` alone would leave partitions out.

    State that a stream keeps is written as its rows are drawn, so that a partition that is not
    drawn to its end would lose it. Sorting by place draws all and keeps a few.
    """
    from pyspark.sql import functions as f

    shown = [_shown(field, place) for place, field in enumerate(frame.schema.fields)]
    numbered = frame.toDF(*_numbers(frame)).withColumn(_PLACE, f.monotonically_increasing_id())
    return numbered.orderBy(_PLACE).limit(rows).select(*shown)


def _numbers(frame: "DataFrame") -> list[str]:
    """Two columns may have the same name, and any sign may be in one."""
    return [str(place) for place in range(len(frame.columns))]


def _shown(field: "StructField", place: int) -> "Column":
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType

    column = f.col(f"`{place}`")
    return column if isinstance(field.dataType, BinaryType) else column.cast("string")


def batch_text(
    epoch: Epoch, columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int
) -> str:
    """A heading, the table, and how many rows it leaves out."""
    heading = f"{epoch.flow}, batch {epoch.batch}: {_rows_text(total)}"
    lines = [heading, *table_lines(columns, rows)]
    if total > len(rows):
        lines.append(f"... and {total - len(rows)} more")
    return "\n".join(lines)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Columns as wide as their widest cell, up to a limit."""
    cells = [[_cell(name) for name in columns], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    rule = ["-" * width for width in widths]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (cells[0], rule, *cells[1:])
    ]


def _cell(value: object) -> str:
    if value is None:
        return "null"
    text = _bytes_text(bytes(value)) if isinstance(value, bytes | bytearray) else str(value)
    text = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 3] + "..."


def _bytes_text(value: bytes) -> str:
    """Keys and values are mostly texts; what is none is shown by its digits."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def _rows_text(total: int) -> str:
    return "1 row" if total == 1 else f"{total:,} rows"
