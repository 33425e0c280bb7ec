"""What every decoder of whole columns gives back."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """`values` has a null wherever `errors` has a reason; an absent value is null in both."""

    values: pa.Array
    errors: pa.Array


class ColumnDecoder(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


def decoded_type(wanted: "ValueFormat") -> pa.DataType:
    """The type of the values, which is known before there are any."""
    return wanted.open().decode(pa.array([], pa.binary())).values.type


class ValueFormat(Protocol):
    """A picklable description that the workers turn into a decoder, once per task."""

    def open(self) -> ColumnDecoder: ...
