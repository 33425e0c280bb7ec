"""From where to where micro-batches read: starts, ends, repeats, limits, and partitions that come
and go.
"""

import logging
from typing import Any

import pytest

from penstock.client.wire.errors import UnknownTopic
from penstock.spark.planning.errors import PlanError
from penstock.spark.planning.ranges import OffsetRange
from penstock.spark.reading.data_loss import DataLost
from penstock.spark.reading.stream_offsets import StreamOffset
from penstock.spark.reading.stream_planning import FirstBatchUnknown, StreamPlanner
from tests.unit.spark.reading.fake_cluster import (
    FakeCluster,
    Log,
    batch_of,
    one_record,
    options,
    place,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class Run:
    """One run of a query, as Spark drives it."""

    def __init__(self, cluster: FakeCluster, **given: Any) -> None:
        self.clock = Clock()
        self.planner = StreamPlanner(
            cluster.wire, options(**given), clock=self.clock, pause=self.clock.advance
        )

    def first(self) -> tuple[StreamOffset, StreamOffset]:
        initial = self.planner.initial()
        return initial, self.planner.end(initial, limited=True)

    def next(self, start: StreamOffset) -> StreamOffset:
        """Later, when partitions are listed again."""
        self.clock.advance(1.0)
        return self.planner.end(start, limited=True)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[tuple[str, int, int]]:
        return [plain(each) for each in self.planner.ranges(start, end)]


def plain(each: OffsetRange) -> tuple[str, int, int]:
    return (str(each.partition), each.start, each.stop)


def through_checkpoint(offset: StreamOffset) -> StreamOffset:
    return StreamOffset.from_json(offset.to_json())


def test_latest_is_settled_once_and_travels_in_the_end_of_the_first_batch() -> None:
    cluster = FakeCluster(a=5)
    run = Run(cluster, subscribe="a")
    first = run.planner.initial()
    cluster.logs[place("a")].end = 8
    assert run.planner.initial() == first
    end = run.planner.end(first, limited=True)
    assert end.to_json() == {"@start": {"a": {"0": 5}}, "a": {"0": 8}}
    assert run.ranges(first, end) == [("a-0", 5, 8)]

    # The process died; by now the latest is somewhere else, and the batch is the same.
    cluster.logs[place("a")].end = 20
    again = Run(cluster, subscribe="a")
    assert again.planner.initial().to_json() == {"@start": {"a": {"0": 20}}}
    assert again.ranges(again.planner.initial(), through_checkpoint(end)) == [("a-0", 5, 8)]
    later = again.next(through_checkpoint(end))
    assert later.to_json() == {"a": {"0": 20}}
    assert again.ranges(end, later) == [("a-0", 8, 20)]


def test_a_repeat_without_a_known_start_is_refused() -> None:
    run = Run(FakeCluster(a=5), subscribe="a")
    end = StreamOffset.from_json({"a": {"0": 3}})
    with pytest.raises(FirstBatchUnknown, match="does not say where it started"):
        run.planner.ranges(run.planner.initial(), end)


def test_nothing_new_is_the_same_position_and_nothing_to_read() -> None:
    run = Run(FakeCluster(a=5), subscribe="a")
    initial, end = run.first()
    assert run.ranges(initial, end) == []
    assert run.next(end) is end
    assert run.ranges(end, end) == []


def test_no_topic_yet_and_then_one() -> None:
    cluster = FakeCluster()
    run = Run(cluster, subscribePattern="a.*")
    initial, end = run.first()
    assert initial.to_json() == end.to_json() == {"@start": {}}
    cluster.logs[place("ab")] = Log(end=3)
    later = run.next(through_checkpoint(end))
    assert run.ranges(end, later) == [("ab-0", 0, 3)]
    assert run.ranges(through_checkpoint(end), through_checkpoint(later)) == [("ab-0", 0, 3)]


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"startingOffsets": "earliest"}, 2),
        ({"startingOffsets": "latest"}, 9),
        ({"startingOffsets": '{"a": {"0": 4}}'}, 4),
        ({"startingOffsets": '{"a": {"0": -2}}'}, 2),
        ({"startingTimestamp": 60}, 6),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 71}}'}, 8),
        ({"startingTimestamp": 500, "startingOffsetsByTimestampStrategy": "latest"}, 9),
    ],
)
def test_the_start_is_where_the_options_say(given: dict[str, Any], start: int) -> None:
    cluster = FakeCluster()
    cluster.logs[place("a")] = Log(start=2, end=9, times={n: 10 * n for n in range(9)})
    assert Run(cluster, subscribe="a", **given).planner.initial().position == {place("a"): start}


def test_a_start_that_can_not_be_found_is_one_sentence() -> None:
    cluster = FakeCluster(a=3)
    with pytest.raises(PlanError, match="No record of a-0"):
        Run(cluster, subscribe="a", startingTimestamp=500).planner.initial()
    with pytest.raises(UnknownTopic, match="Topic b does not exist"):
        Run(cluster, subscribe="a,b").planner.initial()
    with pytest.raises(UnknownTopic, match="Topic a has no partition 7"):
        Run(cluster, assign='{"a": [0, 7]}').planner.initial()


def test_limits_share_a_batch_by_what_waits() -> None:
    cluster = FakeCluster(a=90, b=10)
    run = Run(cluster, subscribe="a,b", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    initial, end = run.first()
    assert end.position == {place("a"): 9, place("b"): 1}
    assert run.planner.latest == {place("a"): 90, place("b"): 10}
    assert run.planner.end(initial, limited=False).position == {place("a"): 90, place("b"): 10}


def test_a_small_batch_is_held_back_but_not_for_ever() -> None:
    cluster = FakeCluster(a=1)
    run = Run(
        cluster,
        subscribe="a",
        startingOffsets="earliest",
        minOffsetsPerTrigger=3,
        maxTriggerDelay="60s",
    )
    _, first = run.first()
    assert first.position == {place("a"): 1}, "the first batch never waits"
    cluster.logs[place("a")].end = 3
    assert run.next(first) is first
    cluster.logs[place("a")].end = 4
    second = run.next(first)
    assert second.position == {place("a"): 4}
    cluster.logs[place("a")].end = 5
    assert run.next(second) is second
    run.clock.advance(60)
    assert run.next(second).position == {place("a"): 5}


def test_available_now_ends_where_the_log_ended_when_it_started() -> None:
    cluster = FakeCluster(a=6)
    run = Run(
        cluster,
        subscribePattern=".*",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=4,
        minOffsetsPerTrigger=3,
    )
    run.planner.stop_at_now()
    cluster.logs[place("a")].end = 50
    cluster.logs[place("new")] = Log(end=9)
    _, first = run.first()
    assert first.position == {place("a"): 4}
    second = run.next(first)
    assert second.position == {place("a"): 6}, "less than the minimum, but the rest of it"
    assert run.next(second) is second


def test_available_now_from_latest_reads_nothing_and_loses_nothing() -> None:
    cluster = FakeCluster(a=6)
    run = Run(cluster, subscribe="a")
    run.planner.stop_at_now()
    cluster.logs[place("a")].end = 9
    initial, end = run.first()
    assert run.ranges(initial, end) == []
    assert end.position == {place("a"): 6}
    assert Run(cluster, subscribe="a").next(end).position == {place("a"): 9}


def test_new_partitions_are_read_from_their_beginning() -> None:
    cluster = FakeCluster(a=5)
    run = Run(cluster, subscribe="a", maxOffsetsPerTrigger=100)
    _, first = run.first()
    cluster.logs[place("a", 1)] = Log(end=3)
    assert run.planner.end(first, limited=True) is first, "partitions are not listed every time"
    second = run.next(first)
    assert run.ranges(first, second) == [("a-1", 0, 3)]


def test_a_new_partition_that_lost_its_first_records_is_a_loss() -> None:
    cluster = FakeCluster(a=5)
    run, careless = Run(cluster, subscribe="a"), Run(cluster, subscribe="a", failOnDataLoss="false")
    _, first = run.first()
    cluster.logs[place("a", 1)] = Log(start=2, end=3)
    with pytest.raises(DataLost, match="Partition 1 of topic a is new and starts at offset 2"):
        run.next(first)
    assert careless.ranges(first, careless.next(first)) == [("a-1", 2, 3)]


def test_a_deleted_topic_ends_the_query_or_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(a=5, b=5)
    run = Run(cluster, subscribe="a,b")
    careless = Run(cluster, subscribe="a,b", failOnDataLoss="false")
    _, first = run.first()
    del cluster.logs[place("a")]
    cluster.logs[place("b")].end = 6
    with pytest.raises(DataLost, match="Partition 0 of topic a is gone"):
        run.next(first)
    with caplog.at_level(logging.WARNING):
        end = careless.next(first)
    assert "is gone" in caplog.text
    assert end.position == {place("b"): 6}
    assert careless.next(end) is end
    # It comes back as a topic that nobody has read from.
    cluster.logs[place("a")] = Log(end=2)
    assert careless.ranges(end, careless.next(end)) == [("a-0", 0, 2)]


def test_a_repeated_batch_whose_new_topic_is_deleted_ends_the_query_or_is_left_to_its_task() -> (
    None
):
    cluster = FakeCluster(a=5)
    given = {"subscribePattern": ".*", "minPartitions": 2}
    _, first = Run(cluster, **given).first()
    cluster.logs[place("a")].end = 6
    cluster.logs[place("b")] = Log(end=4000)
    second = Run(cluster, **given).next(first)
    # The process died with the batch planned and not done.
    del cluster.logs[place("b")]
    with pytest.raises(UnknownTopic, match="Topic b does not exist"):
        Run(cluster, **given).ranges(first, second)
    careless = Run(cluster, failOnDataLoss="false", **given)
    assert careless.ranges(first, second) == [("a-0", 5, 6), ("b-0", 0, 4000)]
    cut = Run(cluster, **given | {"failOnDataLoss": "false", "minPartitions": 3})
    assert [part for part in cut.ranges(first, second) if part[0] == "b-0"] == [
        ("b-0", 0, 2000),
        ("b-0", 2000, 4000),
    ]
    assert careless.next(second).position == {place("a"): 6}


def test_a_topic_made_anew_is_never_skipped() -> None:
    cluster = FakeCluster(a=5)
    run, careless = Run(cluster, subscribe="a"), Run(cluster, subscribe="a", failOnDataLoss="false")
    _, first = run.first()
    cluster.logs[place("a")] = Log(end=3)
    with pytest.raises(DataLost, match="the topic was created again"):
        run.next(first)
    end = careless.next(first)
    assert careless.ranges(first, end) == [("a-0", 0, 3)]


def test_what_looks_like_a_loss_is_looked_at_again() -> None:
    cluster = FakeCluster(a=5)
    run = Run(cluster, subscribe="a")
    _, first = run.first()
    cluster.logs[place("a")].end = 4

    def pause(seconds: float) -> None:
        run.clock.advance(seconds)
        cluster.logs[place("a")].end = 6

    run.planner._live._pause = pause
    assert run.next(first).position == {place("a"): 6}


def test_a_misspelt_topic_of_a_restart_is_not_taken_for_a_deleted_one() -> None:
    run = Run(FakeCluster(a=5), subscribe="a,misspelt", failOnDataLoss="false")
    with pytest.raises(UnknownTopic, match="Topic misspelt does not exist"):
        run.next(StreamOffset.from_json({"a": {"0": 1}}))


def test_assigned_partitions_and_no_others() -> None:
    cluster = FakeCluster(a=5)
    cluster.logs[place("a", 1)] = Log(end=7)
    run = Run(cluster, assign='{"a": [1]}', startingOffsets="earliest")
    initial, end = run.first()
    assert run.ranges(initial, end) == [("a-1", 0, 7)]


def test_partitions_are_split_only_when_asked() -> None:
    cluster = FakeCluster(a=5000)
    whole = Run(cluster, subscribe="a", startingOffsets="earliest")
    initial, end = whole.first()
    assert whole.ranges(initial, end) == [("a-0", 0, 5000)]
    assert cluster.peeked == []
    parts = Run(cluster, subscribe="a", startingOffsets="earliest", minPartitions=4)
    initial, end = parts.first()
    found = parts.ranges(initial, end)
    assert len(found) == 4
    assert (found[0][1], found[-1][2]) == (0, 5000)
    assert len(cluster.peeked) > 1


def test_a_partition_is_split_by_what_it_really_holds() -> None:
    cluster = FakeCluster(a=8000)
    # Compaction has left one record in a hundred of the first half.
    cluster.batch_at = lambda offset: (
        batch_of(offset, records=1, span=100) if offset < 4000 else one_record(offset)
    )
    run = Run(cluster, subscribe="a", startingOffsets="earliest", minPartitions=2)
    found = run.ranges(*run.first())
    assert len(found) == 2
    assert found[1][1] > 5500, "by offsets alone the cut would be at 4000"
