"""Proves what a declaration gives: constructor, defaults, equality, versions."""

from uuid import UUID

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    VersionRange,
    array,
    int32,
    message,
    nested,
    schema_of,
    string,
    struct,
    uuid,
)


@struct
class Inner:
    number: int = int32("0+", default=-1)


@message(ApiKey.METADATA, versions="0-3", flexible="2+")
class Outer:
    name: str | None = string("0+", nullable="1+")
    identity: UUID = uuid("1-2")
    inner: Inner | None = nested(Inner, "2+", tag=0)
    inners: list[Inner] = array(Inner, "0+")


def test_defaults() -> None:
    outer = Outer()
    assert (outer.name, outer.identity, outer.inner, outer.inners) == ("", UUID(int=0), None, [])
    assert Inner().number == -1


def test_each_instance_has_a_list_of_its_own() -> None:
    first, second = Outer(), Outer()
    first.inners.append(Inner())
    assert second.inners == []


def test_fields_are_keyword_only_and_unknown_ones_are_refused() -> None:
    with pytest.raises(TypeError):
        Outer("name")  # type: ignore[misc]
    with pytest.raises(TypeError):
        Outer(nme="name")  # type: ignore[call-arg]


def test_a_wrong_first_construction_does_not_spoil_the_next() -> None:
    @struct
    class Fresh:
        number: int = int32("0+")

    with pytest.raises(TypeError):
        Fresh(wrong=1)  # type: ignore[call-arg]
    assert Fresh(number=2).number == 2


def test_instances_take_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Outer().other = 1  # type: ignore[attr-defined]


def test_equality_is_by_type_and_value() -> None:
    assert Inner(number=1) == Inner(number=1)
    assert Inner(number=1) != Inner(number=2)
    assert Inner() != Outer()


def test_repr_reads_like_the_constructor() -> None:
    assert repr(Inner(number=4)) == "Inner(number=4)"


def test_schema_of_a_message() -> None:
    schema = schema_of(Outer)
    assert schema.api_key is ApiKey.METADATA
    assert schema.versions == (0, 3)
    assert schema.flexible_from == 2
    assert [field.name for field in schema.fields] == ["name", "identity", "inner", "inners"]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", (3, 99), (0, 2)), ("0-12", (0, 12), (13,)), ("1", (1,), (0, 2))],
)
def test_version_ranges(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = VersionRange(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
