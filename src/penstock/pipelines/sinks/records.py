"""How rows become records of a topic: as they are, or each as JSON with one column as its key."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from penstock.pipelines.sinks.sink import SinkRefused
from penstock.spark.options.misspelt import nearest, nearest_hint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BYTES = (StringType, BinaryType)
_WITHOUT_TEXT = (ArrayType, MapType, StructType, VariantType)
# As exact as Spark's own times, and with a zone: the defaults leave microseconds out and depend on
# the session. A null is said and not left out, so that all records of a flow have the same fields.
JSON_OPTIONS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    """Which columns of the rows make up a record."""

    given: StructType
    key: str | None
    """The column that becomes the key."""
    in_json: tuple[str, ...]
    """The columns of the JSON text that is the value; none: the rows have their value."""
    as_they_are: tuple[str, ...]

    def schema(self) -> StructType:
        """Of the records, so that they can be checked before there are any."""
        fields = [StructField(name, self.given[name].dataType) for name in self.as_they_are]
        if self.key is not None:
            kind = self.given[self.key].dataType
            fields.append(StructField("key", kind if isinstance(kind, _BYTES) else StringType()))
        if self.in_json:
            fields.append(StructField("value", StringType()))
        return StructType(fields)

    def records(self, frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        columns = [_column(name) for name in self.as_they_are]
        if self.key is not None:
            columns.append(self._key_column().alias("key"))
        if self.in_json:
            row = f.struct(*(_column(name) for name in self.in_json))
            columns.append(f.to_json(row, JSON_OPTIONS).alias("value"))
        return frame.select(*columns)

    def _key_column(self) -> "Column":
        assert self.key is not None
        column = _column(self.key)
        if isinstance(self.given[self.key].dataType, _BYTES):
            return column
        return column.cast("string")


def record_shape(given: StructType, *, key: str | None, has_topic: bool) -> RecordShape:
    """How rows are written; raises SinkRefused if `key` names no column that can be a key.

    Rows with a text or bytes in `value` are records already: their other columns are taken as
    `.format("penstock")` takes them. All others become JSON, without what the record itself has a
    place for: a column `key`, headers, and `topic` where the sink names none.
    """
    names = given.names
    if key is not None:
        _check_key(given, key)
    if _is_bytes(given, "value"):
        kept = tuple(name for name in names if key is None or name != "key")
        return RecordShape(given=given, key=key, in_json=(), as_they_are=kept)
    own_key = "key" if key is None and _is_bytes(given, "key") else None
    headers = ("headers",) if _is_headers(given) else ()
    topic = ("topic",) if not has_topic and "topic" in names else ()
    outside = {*headers, *topic, *([own_key] if own_key else [])}
    # Taken only where the options ask for it; it is part of the row all the same.
    timestamp = ("timestamp",) if "timestamp" in names else ()
    in_json = tuple(name for name in names if name not in outside)
    if not in_json:
        raise SinkRefused(
            f"The rows have no column that could be a record's value: their columns are"
            f" {_listed(names)}."
        )
    return RecordShape(
        given=given,
        key=key or own_key,
        in_json=in_json,
        as_they_are=(*headers, *topic, *timestamp),
    )


def _check_key(given: StructType, key: str) -> None:
    if key not in given.names:
        hint = nearest_hint(nearest(key, given.names))
        raise SinkRefused(
            f"The sink's key is the column {key!r}, which the rows do not have{hint}: their columns"
            f" are {_listed(given.names)}."
        )
    kind = given[key].dataType
    if isinstance(kind, _WITHOUT_TEXT):
        raise SinkRefused(
            f"The column {key!r} can't be the key of records, because it is of type"
            f" {kind.simpleString()}."
        )


def _is_bytes(given: StructType, name: str) -> bool:
    return name in given.names and isinstance(given[name].dataType, _BYTES)


def _is_headers(given: StructType) -> bool:
    if "headers" not in given.names:
        return False
    kind: DataType = given["headers"].dataType
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and kind.elementType.names == ["key", "value"]
    )


def _column(name: str) -> "Column":
    from pyspark.sql import functions as f

    escaped = name.replace("`", "``")
    return f.col(f"`{escaped}`")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
