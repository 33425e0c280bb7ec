"""Proves that an option nobody knows is refused by name, and that Spark's own options pass."""

import pytest

from penstock.spark.options.errors import OptionError
from penstock.spark.options.misspelt import READ_OPTIONS, WRITE_OPTIONS
from tests.unit.spark.options.samples import read_with, write_with


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("STARTINGOFFSET", "startingOffsets"),
        ("subscribes", "subscribe"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
        ("commit_group", "commitGroup"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("group.id", "kafka.group.id"),
        ("kafka_bootstrap_servers", "kafka.bootstrap.servers"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    for options in (read_with, write_with):
        with pytest.raises(OptionError) as refusal:
            options({name: "1"})
        assert str(refusal.value) == f"There is no option {name.lower()}; the nearest is {nearest}."


def test_a_name_like_no_other_is_refused_without_a_proposal() -> None:
    with pytest.raises(OptionError, match=r"^There is no option qwertz\.$"):
        read_with({"qwertz": "1"})


@pytest.mark.parametrize(
    "name",
    [
        "path",
        "checkpointLocation",
        "QUERYNAME",
        "mergeSchema",
        "spark.sql.shuffle.partitions",
        "__partition_columns",
        "_mockSystemTime",
    ],
)
def test_sparks_own_options_pass(name: str) -> None:
    assert read_with({name: "1"}).notes == ()
    assert write_with({name: "1"}).notes == ()


def test_options_of_a_read_are_noted_on_a_write() -> None:
    # Jobs keep one set of options for both directions.
    values = {"assign": "{}", "includeHeaders": "true", "tracing": "true"}
    for name in READ_OPTIONS:
        notes = write_with({name: values.get(name, "1")}).notes
        expected = (
            () if name in WRITE_OPTIONS else (f"The option {name} has no effect on a write.",)
        )
        assert notes == expected
