"""Spark's types have one form in files; others, and rows that do not fit, are refused by name."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    VariantType,
)

from penstock.pipelines.lakes.arrow_schemas import arrow_schema
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.schema_fit import fit


def struct(*fields: tuple[str, object]) -> StructType:
    schema = StructType()
    for name, kind in fields:
        schema = schema.add(name, kind)  # type: ignore[arg-type]
    return schema


def test_every_type_that_all_tables_hold_has_its_arrow_type() -> None:
    nested = struct(("a.b", ArrayType(TimestampType())), ("c", IntegerType()))
    schema = struct(("x.y", StringType()), ("clock", TimeType(6)), ("nested", nested))
    assert arrow_schema(schema) == pa.schema(
        [
            ("x.y", pa.string()),
            ("clock", pa.time64("us")),
            (
                "nested",
                pa.struct(
                    [
                        ("a.b", pa.list_(pa.field("element", pa.timestamp("us", "UTC")))),
                        ("c", pa.int32()),
                    ]
                ),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (NullType(), "void"),
        (DayTimeIntervalType(), "interval day to second"),
        (VariantType(), "variant"),
        (StructType(), None),
    ],
)
def test_other_types_are_refused_with_the_path_of_the_column(
    kind: object, text: str | None
) -> None:
    schema = struct(("outer", ArrayType(struct(("inner", kind)))))
    with pytest.raises(LakeRefused) as refused:
        arrow_schema(schema)
    assert str(refused.value).startswith("The column 'outer.inner' ")
    assert text is None or f"has the type {text}," in str(refused.value)
    assert str(refused.value).endswith("which a table of files can't hold.")


def test_names_that_differ_by_case_alone_are_refused() -> None:
    with pytest.raises(LakeRefused, match=r"^The rows have two columns of the name 'Sensor'\.$"):
        arrow_schema(struct(("sensor", StringType()), ("Sensor", StringType())))
    twice = struct(("a", StringType()), ("a", StringType()))
    with pytest.raises(LakeRefused, match=r"^The column 'x' has two fields of the name 'a'\.$"):
        arrow_schema(struct(("x", twice)))


HELD = pa.schema(
    [
        ("sensor", pa.string()),
        ("value", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)
MAY_EVOLVE = "; `evolve: true` on the sink lets the table take them"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (HELD.append(pa.field("room", pa.string())), f"it has no column 'room'{MAY_EVOLVE}"),
        (HELD.remove(0), f"they have no column 'sensor'{MAY_EVOLVE}"),
        (
            HELD.set(1, pa.field("value", pa.string())),
            "its column 'value' is double, and theirs is string",
        ),
        (
            HELD.set(2, pa.field("tags", pa.map_(pa.string(), pa.list_(pa.int64())))),
            "its column 'tags' is map<string, list<item: int32>>,"
            f" and theirs is map<string, list<item: int64>>{MAY_EVOLVE}",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_the_column(given: pa.Schema, text: str) -> None:
    with pytest.raises(LakeRefused) as refused:
        fit(HELD, given, [], [], "/lake/t")
    assert str(refused.value) == f"The rows do not fit the table '/lake/t': {text}."


def test_rows_fit_in_any_order_of_columns_and_whatever_may_be_null() -> None:
    given = pa.schema(
        [
            pa.field("value", pa.float64(), nullable=False),
            ("tags", pa.map_(pa.large_string(), pa.list_(pa.field("element", pa.int32())))),
            ("sensor", pa.large_string()),
        ]
    )
    fit(HELD, given, ["sensor"], ["sensor"], "/lake/t")


def test_another_partitioning_is_refused() -> None:
    text = r"^The table '/lake/t' is partitioned by 'sensor', 'day', not by nothing\.$"
    with pytest.raises(LakeRefused, match=text):
        fit(HELD, HELD, ["sensor", "day"], [], "/lake/t")
