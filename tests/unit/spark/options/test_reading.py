"""Proves that every option of Spark's Kafka source, and our own, arrives as what it means."""

import pickle

import pytest

from penstock.spark.options.errors import OptionError
from penstock.spark.options.reading import columns_of, read_options
from penstock.spark.options.selection import Topics
from tests.unit.spark.options.samples import BOOTSTRAP, read, read_with


def test_defaults() -> None:
    options = read(streaming=True)
    assert options.selection == Topics(("orders",))
    assert options.wire.bootstrap == "localhost:9092"
    assert options.offsets_per_trigger_max is None
    assert options.offsets_per_trigger_min is None
    assert options.trigger_delay_max_s == 900.0
    assert options.partitions_min is None
    assert options.records_per_partition_max is None
    assert options.fail_on_data_loss is True
    assert options.commit_group is None
    assert options.partitions_ttl_s == 0.0
    assert options.notes == ()


def test_every_option_set() -> None:
    options = read(
        streaming=True,
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="8",
        maxRecordsPerPartition="500",
        failOnDataLoss="false",
        commitGroup=" dashboards ",
    )
    assert options.offsets_per_trigger_max == 1000
    assert options.offsets_per_trigger_min == 10
    assert options.trigger_delay_max_s == 30.0
    assert options.partitions_min == 8
    assert options.records_per_partition_max == 500
    assert options.fail_on_data_loss is False
    assert options.commit_group == "dashboards"


def test_names_arrive_in_lower_case() -> None:
    options = read_options(
        {**BOOTSTRAP, "subscribe": "orders", "minpartitions": "3", "failondataloss": "false"},
        streaming=True,
    )
    assert options.partitions_min == 3
    assert options.fail_on_data_loss is False


def test_options_travel_by_pickle() -> None:
    options = read(startingOffsets='{"orders":{"0":5}}', columns="key,offset")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minPartitions", "0"),
        ("minPartitions", "2147483648"),
        ("maxRecordsPerPartition", "0"),
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "-1"),
        ("maxTriggerDelay", "soon"),
        ("failOnDataLoss", "no"),
        ("includeHeaders", "yes"),
        ("commitGroup", " "),
        ("partition.metadata.cache.ttl.ms", "0"),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^The option {name} .*\.$"):
        read_with({name: text}, streaming=True)


def test_the_minimum_is_not_above_the_maximum() -> None:
    read(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(11\) is higher than .* \(10\)"):
        read(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="11")


@pytest.mark.parametrize(("text", "seconds"), [("-1", 0.0), ("60000", 60.0)])
def test_the_list_of_partitions_may_be_kept(text: str, seconds: float) -> None:
    assert read_with({"partition.metadata.cache.ttl.ms": text}).partitions_ttl_s == seconds


COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, COLUMNS),
        ({"includeHeaders": "true"}, (*COLUMNS, "headers")),
        ({"columns": "offset, Value,TIMESTAMPTYPE"}, ("offset", "value", "timestampType")),
        ({"columns": "headers,key"}, ("headers", "key")),
        ({"columns": "key", "includeHeaders": "true"}, ("key", "headers")),
        ({"columns": "headers,key", "includeHeaders": "true"}, ("headers", "key")),
    ],
)
def test_columns(options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert read(**options).columns == columns
    assert columns_of(options) == columns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("key,val", "names val, which is not a column; the nearest is value"),
        ("xyz", "names xyz, which is not a column"),
        (" , ", "does not name a column"),
        ("key,value,KEY", "names key twice"),
    ],
)
def test_wrong_columns_are_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^The option columns {reason}\.$"):
        columns_of({"columns": text})


def test_what_only_a_stream_has_is_noted_in_a_batch() -> None:
    options = {
        "maxOffsetsPerTrigger": "5",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "1s",
        "commitGroup": "dashboards",
    }
    assert read(streaming=True, **options).notes == ()
    assert read(**options).notes == tuple(
        f"The option {name} has no effect in a batch query." for name in options
    )


def test_the_end_by_timestamp_is_noted_on_a_stream() -> None:
    assert read(endingTimestamp="5").notes == ()
    (note,) = read(streaming=True, endingTimestamp="5").notes
    assert note == "The option endingTimestamp has no effect on a stream, which has no end."


@pytest.mark.parametrize(
    "name",
    ["groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "topic"],
)
def test_what_has_no_effect_on_a_read_is_noted(name: str) -> None:
    assert read_with({name: "5"}).notes == (f"The option {name} has no effect on a read.",)


def test_a_broker_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be set to the address"):
        read_options({"subscribe": "orders"}, streaming=False)
