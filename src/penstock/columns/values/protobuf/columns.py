"""Turning values of one field, taken from all messages of a batch, into one Arrow array.

The Spark types: (s)int32 and sfixed32 are INT, (s)int64 and sfixed64 BIGINT; the unsigned ones
take the next type that holds them all: BIGINT, and DECIMAL(20,0). An enum is a STRING, its number
as text where the schema has no name for it. A Timestamp is a TIMESTAMP, a Duration an INTERVAL
DAY TO SECOND, a wrapper (Int32Value and its like) the nullable value itself, and Struct, Value
and ListValue are JSON as a STRING.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf import json_format

from penstock.columns.values.arrays import list_array, map_array, struct_array

MICROS = 1_000_000
NANOS_PER_MICRO = 1_000
NANOS_MAX = 999_999_999
# What Spark's TIMESTAMP holds: the years 1 to 9999. Protobuf's own has the same bounds.
TIMESTAMP_SECONDS = range(-62_135_596_800, 253_402_300_800)
# As Protobuf's Duration is defined: about ten thousand years either way.
DURATION_SECONDS = range(-315_576_000_000, 315_576_000_001)


class Unholdable(Exception):
    """A value that the column's type can't hold; the text is the sentence for its row."""


class Column(Protocol):
    def array(self, values: Sequence[Any]) -> pa.Array:
        """`values` has None where there is no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    arrow_type: pa.DataType

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self.arrow_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumNames:
    names: Mapping[int, str]

    def array(self, values: Sequence[Any]) -> pa.Array:
        names = self.names
        try:
            return pa.array([None if each is None else names[each] for each in values], pa.string())
        except KeyError:
            known = [None if each is None else names.get(each, str(each)) for each in values]
            return pa.array(known, pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    path: str

    def array(self, values: Sequence[Any]) -> pa.Array:
        micros = [None if each is None else self._micros(each) for each in values]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))

    def _micros(self, value: Any) -> int:
        seconds, nanos = value.seconds, value.nanos
        if seconds not in TIMESTAMP_SECONDS or not 0 <= nanos <= NANOS_MAX:
            raise Unholdable(f"The Protobuf field {self.path!r} is not a time of a year 1 to 9999.")
        return int(seconds * MICROS + nanos // NANOS_PER_MICRO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    path: str

    def array(self, values: Sequence[Any]) -> pa.Array:
        micros = [None if each is None else self._micros(each) for each in values]
        return pa.array(micros, pa.int64()).cast(pa.duration("us"))

    def _micros(self, value: Any) -> int:
        seconds, nanos = value.seconds, value.nanos
        if seconds not in DURATION_SECONDS or not -NANOS_MAX <= nanos <= NANOS_MAX:
            raise Unholdable(f"The Protobuf field {self.path!r} is not a valid duration.")
        return int(seconds * MICROS + int(nanos / NANOS_PER_MICRO))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A message with one field `value`, which exists to make a scalar nullable."""

    inner: Column

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.inner.array([None if each is None else each.value for each in values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    path: str

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(
            [None if each is None else self._text(each) for each in values], pa.string()
        )

    def _text(self, value: Any) -> str:
        try:
            return str(json_format.MessageToJson(value, indent=None))
        except (json_format.Error, ValueError) as error:
            raise Unholdable(f"The Protobuf field {self.path!r} has no JSON form.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    item: Column

    def array(self, values: Sequence[Any]) -> pa.Array:
        counts = np.fromiter(map(len, values), np.int64, len(values))
        return list_array(self.item.array(list(chain.from_iterable(values))), counts, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    key: Column
    value: Column

    def array(self, values: Sequence[Any]) -> pa.Array:
        counts = np.fromiter(map(len, values), np.int64, len(values))
        keys = [key for each in values for key in each]
        # Reading an entry by its key works for messages and scalars alike.
        entries = [each[key] for each in values for key in each]
        return map_array(self.key.array(keys), self.value.array(entries), counts, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`presence`: the message knows whether the field was set, so that an unset one is null."""

    name: str
    presence: bool
    column: Column

    def array(self, messages: Sequence[Any]) -> pa.Array:
        name = self.name
        if self.presence:
            taken = [getattr(each, name) if each.HasField(name) else None for each in messages]
        else:
            taken = list(map(attrgetter(name), messages))
        return self.column.array(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A message; `blank` is one with nothing set, which stands in where there is none."""

    fields: tuple[Field, ...]
    blank: Any

    def array(self, values: Sequence[Any]) -> pa.Array:
        valid = None
        if any(each is None for each in values):
            valid = np.fromiter((each is not None for each in values), np.bool_, len(values))
            values = [self.blank if each is None else each for each in values]
        arrays = [field.array(values) for field in self.fields]
        return struct_array(tuple(each.name for each in self.fields), arrays, len(values), valid)
