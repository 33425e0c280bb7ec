"""Proves by hypothesis that what is encoded decodes to the same message, for any values."""

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.layout import layout_of
from penstock.protocol.kafka.schema import (
    ARRAY,
    NESTED,
    Field,
    Kind,
    boolean,
    bytes_,
    float64,
    records,
    schema_of,
    string,
    uuid,
)
from tests.wire.samples import MESSAGE_VERSIONS

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_decode_reverses_encode(data: st.DataObject) -> None:
    message, version = data.draw(st.sampled_from(MESSAGE_VERSIONS))
    original = data.draw(instances(message, version))
    encoded = encode(original, version)
    decoded = decode(message, version, encoded)
    assert decoded == original
    assert encode(decoded, version) == encoded


def instances(struct_class: type, version: int) -> st.SearchStrategy[Any]:
    layout = layout_of(schema_of(struct_class), version)
    return st.fixed_dictionaries(
        {field.name: values(field, version) for field in layout.ordinary},
        optional={field.name: values(field, version) for field in layout.tagged},
    ).map(lambda chosen: struct_class(**chosen))


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind is NESTED:
        strategy = instances(field.element, version)
    elif field.kind is ARRAY and isinstance(field.element, Kind):
        strategy = st.lists(scalars(field.element), max_size=12)
    elif field.kind is ARRAY:
        strategy = st.lists(instances(field.element, version), max_size=3)
    else:
        strategy = scalars(field.kind)
    if field.tag is None and field.nullable_in(version):
        return st.none() | strategy
    return strategy


def scalars(kind: Kind) -> st.SearchStrategy[Any]:
    if kind is string:
        return TEXT
    if kind in (bytes_, records):
        return st.binary(max_size=200)
    if kind is uuid:
        return st.uuids()
    if kind is boolean:
        return st.booleans()
    if kind is float64:
        return st.floats().filter(lambda value: not math.isnan(value))
    least = 0 if kind.format.isupper() else -(2 ** (8 * kind.size - 1))
    return st.integers(least, least + 2 ** (8 * kind.size) - 1)
