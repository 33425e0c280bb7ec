"""What a batch query reads: bounds, ends that are not there, and conditions that narrow it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from penstock.spark.planning.errors import PlanError
from penstock.spark.reading.batch_planning import plan_batch
from penstock.spark.reading.data_loss import DataLost
from penstock.spark.reading.filters import Narrowing
from tests.unit.spark.reading.fake_cluster import FakeCluster, Log, options, place


def plan(
    cluster: FakeCluster, *filters: Filter, left: list[Filter] | None = None, **given: Any
) -> list[tuple[str, int, int]]:
    narrowing = Narrowing()
    not_taken = narrowing.push(filters)
    if left is not None:
        assert not_taken == left
    ranges = plan_batch(cluster.wire, options(streaming=False, **given), narrowing)
    return [(str(each.partition), each.start, each.stop) for each in ranges]


def test_bounds_that_do_not_fit_the_log_are_told() -> None:
    cluster = FakeCluster(a=5)
    ending = '{"a": {"0": 9}}'
    with pytest.raises(DataLost, match="must end at offset 9 of partition 0 of topic a"):
        plan(cluster, subscribe="a", endingOffsets=ending)
    careless = plan(cluster, subscribe="a", endingOffsets=ending, failOnDataLoss="false")
    assert careless == [("a-0", 0, 5)]
    with pytest.raises(PlanError, match="would start at offset 7 of a-0"):
        plan(cluster, subscribe="a", startingOffsets='{"a": {"0": 7}}')


def test_records_that_come_while_planning_are_not_there_yet() -> None:
    cluster = FakeCluster(a=5)
    assert plan(cluster, subscribe="a") == [("a-0", 0, 5)]
    assert cluster.asked[-1] == "latest"


def test_a_pattern_may_match_nothing() -> None:
    assert plan(FakeCluster(a=5), subscribePattern="x") == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(("offset",), 4), (4, 5)),
        (GreaterThan(("offset",), 4), (5, 10)),
        (GreaterThanOrEqual(("offset",), 4), (4, 10)),
        (LessThan(("offset",), 4), (0, 4)),
        (LessThanOrEqual(("offset",), 4), (0, 5)),
        (In(("offset",), [6, 5]), (5, 7)),
        (EqualTo(("partition",), 0), (0, 10)),
        (Not(EqualTo(("partition",), 1)), (0, 10)),
        (In(("partition",), [0, 3]), (0, 10)),
        (StringStartsWith(("topic",), "a"), (0, 10)),
        (IsNotNull(("offset",)), (0, 10)),
        (EqualTo(("partition",), 1), None),
        (LessThan(("offset",), -5), None),
        (IsNull(("partition",)), None),
        (StringContains(("topic",), "b"), None),
    ],
)
def test_a_condition_that_is_understood_is_kept_exactly(
    condition: Filter, expected: tuple[int, int] | None
) -> None:
    found = plan(FakeCluster(a=10), condition, left=[], subscribe="a")
    assert found == ([] if expected is None else [("a-0", *expected)])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (In(("offset",), [2, 7]), (2, 8)),
        (Not(EqualTo(("offset",), 3)), (0, 10)),
        (EqualTo(("value",), b"x"), (0, 10)),
        (IsNotNull(("key",)), (0, 10)),
        (EqualTo(("headers", "key"), "x"), (0, 10)),
        (EqualTo(("partition",), None), (0, 10)),
        (EqualTo(("timestampType",), 0), (0, 10)),
        # A timestamp that is too far from 1970 for Spark is null.
        (IsNotNull(("timestamp",)), (0, 10)),
        (IsNull(("timestamp",)), (0, 10)),
    ],
)
def test_a_condition_that_is_not_stays_with_spark(
    condition: Filter, expected: tuple[int, int]
) -> None:
    found = plan(FakeCluster(a=10), condition, left=[condition], subscribe="a")
    assert found == [("a-0", *expected)]


def test_a_timestamp_bounds_only_the_start_because_times_are_not_sorted() -> None:
    cluster = FakeCluster(b=10)
    times = {0: 1000, 1: 5000, 2: 2000, 3: 6000, 4: 3000}
    cluster.logs[place("a")] = Log(end=5, times=times)

    def at(ms: int) -> datetime:
        return datetime.fromtimestamp(ms / 1000, UTC)

    lower = GreaterThan(("timestamp",), at(4999.5))
    upper = LessThan(("timestamp",), at(5500))
    assert plan(cluster, lower, upper, left=[lower, upper], subscribe="a") == [("a-0", 1, 5)]
    found = plan(cluster, In(("timestamp",), [at(6000), at(5500)]), subscribe="a,b")
    assert found == [("a-0", 3, 5)], "topic b has nothing so young"
    without_zone = GreaterThan(("timestamp",), datetime(2200, 1, 1))
    before_1970 = GreaterThan(("timestamp",), at(-1000))
    assert plan(cluster, without_zone, before_1970, subscribe="a") == [("a-0", 0, 5)]
