"""Proves where a query starts and ends by its options: forms, precedence, and what is refused."""

import pytest

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.spark.options.bounds import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    NoMatch,
    partition_list,
)
from penstock.spark.options.errors import OptionError
from tests.unit.spark.options.samples import read


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def test_a_batch_reads_everything_and_a_stream_what_is_new() -> None:
    assert (read().starting, read().ending) == (Earliest(), Latest())
    assert read(streaming=True).starting == Latest()


def test_ends_of_the_log_are_named_in_any_case() -> None:
    assert read(startingOffsets=" Earliest ", streaming=True).starting == Earliest()
    assert read(startingOffsets="LATEST", streaming=True).starting == Latest()
    assert read(endingOffsets="latest").ending == Latest()


def test_offsets_by_partition() -> None:
    bound = read(startingOffsets='{"orders":{"0":23,"1":-2},"clicks":{"0":0}}').starting
    assert bound == AtOffsets({at(0): 23, at(1): -2, at(0, "clicks"): 0})
    assert read(startingOffsets='{"orders":{"0":-1}}', streaming=True).starting == AtOffsets(
        {at(0): -1}
    )


def test_one_timestamp_wins_over_timestamps_and_these_over_offsets() -> None:
    offsets, times = '{"orders":{"0":5}}', '{"orders":{"0":1000}}'
    every = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert read(**every, startingTimestamp="2000").starting == AtTimestamp(2000, NoMatch.ERROR)
    assert read(**every).starting == AtTimestamps({at(0): 1000}, NoMatch.ERROR)
    ends = {"endingOffsets": offsets, "endingOffsetsByTimestamp": times}
    assert read(**ends, endingTimestamp="2000").ending == AtTimestamp(2000, NoMatch.ERROR)
    assert read(**ends).ending == AtTimestamps({at(0): 1000}, NoMatch.ERROR)


def test_what_is_overruled_is_not_judged_by_the_rules_of_a_batch() -> None:
    bound = read(startingTimestamp="2000", startingOffsets="latest").starting
    assert bound == AtTimestamp(2000, NoMatch.ERROR)


def test_the_strategy_for_timestamps_without_a_record() -> None:
    chosen = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "LATEST"}
    assert read(**chosen).starting == AtTimestamp(1, NoMatch.LATEST)
    with pytest.raises(OptionError, match=r"Strategy must be error or latest, not \"earliest\""):
        read(startingOffsetsByTimestampStrategy="earliest")


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("text", ["-1", "now", "1.5", '{"orders":{"0":5}}'])
def test_a_timestamp_is_a_whole_number_of_milliseconds(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be a whole number of at least 0"):
        read(**{name: text})


@pytest.mark.parametrize(
    "text",
    [
        '{"orders":{"0":-3}}',
        '{"orders":{"0":"5"}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":1.5}}',
        '{"orders":{"zero":5}}',
        '{"orders":{"-1":5}}',
        '{"orders":{"1_0":5}}',
        '{"orders":{"1":5,"01":6}}',
        '{"orders":{"0":5},"orders":{"1":6}}',
        '{"orders":[0]}',
        '{"orders":5}',
        '{"orders":{"0":9223372036854775808}}',
        "{",
        '{"a":' * 50_000,
    ],
)
@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_offsets_of_another_form_are_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"The option {name} must be JSON such as"):
        read(**{name: text})


def test_a_word_that_is_no_end_of_the_log_is_refused() -> None:
    with pytest.raises(OptionError, match=r'must be earliest, latest or JSON .* not "newest"'):
        read(startingOffsets="newest")


@pytest.mark.parametrize("text", ['{"orders":{"0":-1}}', '{"orders":{"0":"x"}}', "latest", "1000"])
def test_timestamps_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="The option startingOffsetsByTimestamp must be JSON"):
        read(startingOffsetsByTimestamp=text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest in a batch"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, r"can't be -1 \(latest\) for orders-0 in a b"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest in a batch"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, r"can't be -2 \(earliest\) for orders-0 in a b"),
    ],
)
def test_a_batch_can_neither_start_at_the_end_nor_end_at_the_start(
    options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        read(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"The option {name} can't be set on a stream"):
        read(streaming=True, **{name: "latest"})


def test_a_batch_starts_and_ends_in_the_same_partitions() -> None:
    with pytest.raises(OptionError, match=r"same partitions, but only one of them names orders-1"):
        read(startingOffsets='{"orders":{"0":1,"1":1}}', endingOffsets='{"orders":{"0":5}}')
    with pytest.raises(OptionError, match=r"ByTimestamp must name the same .* names orders-1"):
        read(
            startingOffsetsByTimestamp='{"orders":{"0":1}}',
            endingOffsetsByTimestamp='{"orders":{"0":5,"1":5}}',
        )


def test_a_batch_does_not_end_before_it_starts() -> None:
    with pytest.raises(OptionError, match="says 6 for orders-0, which is after 5 in endingOffsets"):
        read(startingOffsets='{"orders":{"0":6}}', endingOffsets='{"orders":{"0":5}}')
    with pytest.raises(OptionError, match="is after 5 in endingOffsetsByTimestamp"):
        read(
            startingOffsetsByTimestamp='{"orders":{"0":6}}',
            endingOffsetsByTimestamp='{"orders":{"0":5}}',
        )
    # The ends of the log are only known to the broker.
    read(startingOffsets='{"orders":{"0":6}}', endingOffsets='{"orders":{"0":-1}}')
    read(startingOffsets='{"orders":{"0":-2}}', endingOffsets='{"orders":{"0":5}}')
    read(startingOffsets='{"orders":{"0":5}}', endingOffsets='{"orders":{"0":5}}')


@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "startingOffsetsByTimestamp", "endingOffsets", "endingOffsetsByTimestamp"],
)
def test_what_is_assigned_and_what_bounds_name_are_the_same_partitions(name: str) -> None:
    assign = '{"orders":[0,1]}'
    read(subscribe=None, assign=assign, **{name: '{"orders":{"0":5,"1":5}}'})
    with pytest.raises(
        OptionError, match=f"assign and {name} must name the same .* names orders-1\\."
    ):
        read(subscribe=None, assign=assign, **{name: '{"orders":{"0":5}}'})


def test_a_stream_of_assigned_partitions_starts_in_these() -> None:
    with pytest.raises(OptionError, match="assign and startingOffsets must name the same"):
        read(
            streaming=True,
            subscribe=None,
            assign='{"orders":[0]}',
            startingOffsets='{"clicks":{"0":5}}',
        )


def test_a_list_of_many_partitions_is_cut() -> None:
    assert partition_list({at(10), at(9)}) == "orders-9, orders-10"
    assert partition_list({at(number) for number in range(15)}).endswith("orders-9 and 5 more")
