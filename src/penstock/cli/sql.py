"""`penstock sql`: an answer about topics in a second, without Spark."""

import csv
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import bootstrap_option
from penstock.cli.output import Cell, counted, print_table
from penstock.cli.values import PositionType
from penstock.client.positions import POSITION_HELP, Bound

if TYPE_CHECKING:
    import pyarrow as pa

# More rows do not make a table that a person reads.
ROWS_SHOWN_MAX = 1_000
# What a drawn table has between two columns, and once more around them.
TABLE_GAP = 3
FORMATS = ("auto", "json", "text", "bytes", "avro", "protobuf")


@click.command()
@click.argument("query")
@click.option("--from", "-o", "start", type=PositionType(), help=f"First record: {POSITION_HELP}.")
@click.option("--to", "end", type=PositionType(), help="End, in the same form; not included.")
@click.option(
    "--values",
    "value_format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Format of the values; auto looks at the records.",
)
@click.option(
    "--schema",
    metavar="SCHEMA",
    help=(
        "Of JSON: fields and types, as in 'id BIGINT, tags VARCHAR[]'. "
        "Of Avro: a schema or its file. Of Protobuf: the file of a descriptor set."
    ),
)
@click.option("--message", metavar="NAME", help="Protobuf message in the descriptor set.")
@click.option(
    "--framing",
    type=click.Choice(["confluent"]),
    help="The header before each value, which a schema registry's serialiser writes.",
)
@click.option(
    "--registry",
    metavar="URL",
    envvar="PENSTOCK_REGISTRY",
    show_envvar=True,
    help="Schema registry whose ids the values begin with, as in http://127.0.0.1:9094.",
)
@click.option("--subject", metavar="NAME", help="Subject there; by default TOPIC-value.")
@click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with the column names first.")
@bootstrap_option
def sql(
    query: str,
    start: Bound,
    end: Bound,
    value_format: str,
    schema: str | None,
    message: str | None,
    framing: str | None,
    registry: str | None,
    subject: str | None,
    as_json: bool,
    as_csv: bool,
    bootstrap: str,
) -> None:
    """Ask a question about topics in SQL.

    Each topic is a table with the columns key, value, topic, partition, offset, timestamp,
    timestampType and headers. Fields of JSON, Avro and Protobuf values are value.NAME. Put names
    with hyphens or dots in double quotes. DuckDB runs the query, so you can use all of its SQL.

    \b
    penstock sql "SELECT key, avg(value.celsius) FROM readings GROUP BY ALL"
    penstock sql --from 1h 'SELECT count(*) FROM "web-clicks"'
    """
    from penstock.client.sql import Session, Values

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    values = Values(
        format=value_format,
        schema=schema,
        message=message,
        framing=framing,
        registry=registry,
        subject=subject,
    )
    with Session(bootstrap=bootstrap, start=start, end=end, values=values) as session:
        answer = session.ask(query)
        rows = (row for batch in answer.batches for row in _rows(batch))
        if as_json:
            _print_json(answer.schema.names, rows)
        elif as_csv:
            _print_csv(answer.schema.names, rows)
        else:
            _print_table(answer.schema.names, rows)


def _rows(batch: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    # Not by name: a query may give two columns the same one.
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _print_json(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    for row in rows:
        line = json.dumps(dict(zip(names, row, strict=True)), default=_text, ensure_ascii=False)
        sys.stdout.write(f"{line}\n")


def _print_csv(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(value) for value in row] for row in rows)


def _print_table(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    shown = [[_cell(value) for value in row] for row in islice(rows, ROWS_SHOWN_MAX)]
    if sys.stdout.isatty() and width_of(names, shown) > shutil.get_terminal_size().columns:
        _print_one_by_one(names, shown)
    else:
        print_table(names, shown)
    left = sum(1 for _ in rows)
    if left:
        total = counted(len(shown) + left, "row")
        click.echo(f"{total}; the first {len(shown):,} are shown.", err=True)


def width_of(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    """How wide a table would be that is drawn in a terminal."""
    columns = zip(names, *rows, strict=True)
    widths = (max(len(_shown(cell)) for cell in column) for column in columns)
    return 1 + sum(width + TABLE_GAP for width in widths)


def _print_one_by_one(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """A line for each column: one of a table would be folded into columns of a few letters."""
    widest = max(map(len, names))
    for number, row in enumerate(rows, 1):
        click.echo(f"row {number:,}")
        for name, cell in zip(names, row, strict=True):
            click.echo(f"  {name:<{widest}}  {_shown(cell)}".rstrip())


def _shown(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _cell(value: Any) -> Cell:
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return _text(value)


def _text(value: Any) -> str:
    """What JSON has no form for."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return str(value)
