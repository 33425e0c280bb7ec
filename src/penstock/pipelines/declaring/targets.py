"""What flows write to, in Spark's words for it, as sinks of a specification."""

from collections.abc import Mapping
from typing import Any

from penstock.pipelines.declaring.declarations import Declarations, Target
from penstock.pipelines.specification.context import nearest_or_known
from penstock.pipelines.specification.model import (
    FunctionReference,
    FunctionSink,
    LakeFormat,
    Sink,
)
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.specification.sinks import read_sink
from penstock.pipelines.specification.tree import tree_of

TABLE_FORMATS = tuple(one.value for one in LakeFormat)
SINK_FORMATS = ("penstock", *TABLE_FORMATS, "console", "function")
# Tables without a path of their own lie here, beside the file.
TABLES_FOLDER = "tables"
PARTITIONS = ("partition_cols", "partition_by")
ROWS = "numRows"


def declare_table(
    declarations: Declarations,
    name: str,
    place: Place,
    *,
    format: str | None,  # noqa: A002
    path: str | None,
    partition_cols: list[str] | None,
    evolve: bool | None,
    options: Mapping[str, Any] | None,
    left_out: Mapping[str, object],
) -> None:
    """A table of files; `left_out` are words of Spark's that mean nothing here."""
    for word, value in left_out.items():
        if value is not None:
            said = f"{word} can't be given for the table {name}: {_REASONS[word]}."
            declarations.problem(place, said)
    chosen = format or LakeFormat.PARQUET.value
    if chosen not in TABLE_FORMATS:
        _unknown_format(declarations, f"the table {name}", chosen, TABLE_FORMATS, place)
        declarations.targets.append(Target(name=name, sink=None, place=place))
        return
    own = {
        "path": path or f"{TABLES_FOLDER}/{name}",
        "partition_cols": partition_cols,
        "evolve": evolve,
    }
    declare_sink(declarations, name, chosen, {**(options or {}), **own}, place)


_REASONS = {
    "table_properties": "give what the format takes as options",
    "cluster_by": "give partition_cols",
    "schema": "a table has the columns of its rows",
}


def declare_sink(
    declarations: Declarations,
    name: str,
    format: str,  # noqa: A002
    options: dict[str, Any],
    place: Place,
) -> None:
    """A sink of any format that there is."""
    if any(other.name == name for other in declarations.targets):
        declarations.problem(place, f"The sink {name} is declared twice.")
    if format not in SINK_FORMATS:
        _unknown_format(declarations, f"the sink {name}", format, SINK_FORMATS, place)
    sink = _sink(declarations, name, format, options, place) if format in SINK_FORMATS else None
    declarations.targets.append(Target(name=name, sink=sink, place=place))


def _sink(
    declarations: Declarations,
    name: str,
    format: str,  # noqa: A002
    options: dict[str, Any],
    place: Place,
) -> Sink | None:
    function = options.get("function")
    if format == "function" and callable(function):
        named = getattr(function, "__name__", name)
        reference = FunctionReference(name=named, function=function, place=place)
        return FunctionSink(function=reference, place=place)
    said = _SHAPES.get(format, _lake_keys)(format, options)
    node = tree_of({key: value for key, value in said.items() if value is not None}, place)
    return read_sink(node, declarations.context, owner=f"the sink {name}")


def _topic_keys(format: str, options: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    own = {key: options.pop(key, None) for key in ("brokers", "key")}
    return {"topic": options.pop("topic", ""), **own, "options": options or None}


def _lake_keys(format: str, options: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    given = [options.pop(word, None) for word in PARTITIONS]
    columns = next((one for one in given if one is not None), None)
    if isinstance(columns, str):
        columns = [column.strip() for column in columns.split(",")]
    own = {format: options.pop("path", ""), "evolve": options.pop("evolve", None)}
    return {**own, "partition_by": columns, "options": options or None}


def _console_keys(format: str, options: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"console": options.pop(ROWS, 20), **options}


def _function_keys(format: str, options: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"function": options.pop("function", ""), **options}


_SHAPES = {"penstock": _topic_keys, "console": _console_keys, "function": _function_keys}


def _unknown_format(
    declarations: Declarations,
    owner: str,
    format: str,  # noqa: A002
    known: tuple[str, ...],
    place: Place,
) -> None:
    hint = nearest_or_known(format, known)
    declarations.problem(place, f"The format {format} of {owner} is unknown{hint}.")
