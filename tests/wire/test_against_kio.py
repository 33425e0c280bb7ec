"""Proves that every message in every version has the bytes that kio gives it, both ways."""

import dataclasses
import datetime
import random
from typing import Any
from uuid import UUID

import pytest
from kio.serial._introspect import EntityField, classify_field, is_optional

from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.schema import NESTED, Field, Kind, schema_of
from tests.wire import kio_oracle
from tests.wire.samples import MESSAGE_VERSIONS, MESSAGES, name_of, sample

SAMPLES = 12
OWN_TAGS_FROM = 10_000
KNOWN_TO_KIO = [case for case in MESSAGE_VERSIONS if kio_oracle.is_known(*case)]


@pytest.mark.parametrize("case", KNOWN_TO_KIO, ids=name_of)
def test_bytes_equal_kio_in_both_directions(case: tuple[type, int]) -> None:
    message, version = case
    kio_type = kio_oracle.kio_class(message, version)
    rng = random.Random(name_of(case))
    for _ in range(SAMPLES):
        ours = without_own(sample(message, version, rng))
        theirs = kio_oracle.to_kio(ours, kio_type)
        encoded = encode(ours, version)
        assert encoded == kio_oracle.write(theirs)
        assert kio_oracle.read(kio_type, encoded) == theirs
        assert decode(message, version, encoded) == ours


def without_own(message: Any) -> Any:
    """Without the fields that Kafka does not have: their tags are far above those it uses."""
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.tag is not None and field.tag >= OWN_TAGS_FROM:
            setattr(message, field.name, getattr(type(message)(), field.name))
        elif field.kind is NESTED and value is not None:
            without_own(value)
        elif isinstance(value, list) and isinstance(field.element, type):
            for each in value:
                without_own(each)
    return message


@pytest.mark.parametrize("case", KNOWN_TO_KIO, ids=name_of)
def test_defaults_and_nullability_equal_kio(case: tuple[type, int]) -> None:
    compare_declarations(case[0], kio_oracle.kio_class(*case), case[1])


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_newest_version_is_the_newest_of_kio(message: type) -> None:
    last = schema_of(message).versions[1]
    assert kio_oracle.is_known(message, last)
    assert not kio_oracle.is_known(message, last + 1)


def test_few_versions_are_too_old_for_kio() -> None:
    """The others have an oracle of their own in test_old_versions."""
    assert len(MESSAGE_VERSIONS) - len(KNOWN_TO_KIO) == 2 * 18


def compare_declarations(struct_class: type, kio_type: Any, version: int) -> None:
    fields = {field.name: field for field in schema_of(struct_class).fields}
    for theirs in dataclasses.fields(kio_type):
        ours = fields.get(theirs.name) or fields[f"{theirs.name}_ms"]
        assert ours.exists_in(version)
        assert ours.tag == theirs.metadata.get("tag")
        compare_nullability(ours, theirs, version)
        if ours.kind is not NESTED:
            assert ours.default == default_of_kio(theirs, ours.kind), theirs.name
        element = classify_field(theirs).type_
        if dataclasses.is_dataclass(element):
            compare_declarations(ours.element, element, version)


def compare_nullability(ours: Field, theirs: Any, version: int) -> None:
    # kio has None for a zero id and for no time, which are not nulls on the wire.
    if theirs.metadata.get("kafka_type") in ("uuid", "datetime_i64"):
        return
    if isinstance(classify_field(theirs), EntityField) and ours.tag is not None:
        return
    assert ours.nullable_in(version) == is_optional(theirs), theirs.name


def default_of_kio(field: Any, kind: Kind) -> object:
    default = field.default
    if default is dataclasses.MISSING:
        return kind.default
    if field.metadata.get("kafka_type") == "uuid" and default is None:
        return UUID(int=0)
    if field.metadata.get("kafka_type") == "datetime_i64" and default is None:
        return -1
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    return ... if default == () else default
