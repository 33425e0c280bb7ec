"""A data file as JSON, which is how a task tells the driver of it and how a manifest keeps it."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from penstock.pipelines.lakes.lake_table import ColumnStatistics, DataFile

_READERS: Mapping[str, Callable[[str], Any]] = {
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
}


def to_json(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "rows": file.rows,
        "size": file.size,
        "sha256": file.sha256,
        "partition": dict(file.partition),
        "statistics": {
            name: {
                "nulls": column.nulls,
                "least": _bound_to_json(column.least),
                "greatest": _bound_to_json(column.greatest),
            }
            for name, column in file.statistics.items()
        },
    }


def from_json(value: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=value["path"],
        rows=value["rows"],
        size=value["size"],
        sha256=value["sha256"],
        partition=value["partition"],
        statistics={
            name: ColumnStatistics(
                nulls=column["nulls"],
                least=_bound_from_json(column["least"]),
                greatest=_bound_from_json(column["greatest"]),
            )
            for name, column in value["statistics"].items()
        },
    )


def _bound_to_json(value: Any) -> Any:
    """Values that JSON has no word for carry the name of their type."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else {"float": str(value)}
        case datetime():
            return {"timestamp": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case time():
            return {"time": value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
    raise AssertionError(f"A bound of type {type(value).__name__} can't be written as JSON.")


def _bound_from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    ((kind, text),) = value.items()
    if kind == "float":
        return float(text)
    return _READERS[kind](text)
