"""What Spark's questions are answered with, and that readers travel by pickle."""

import logging
import pickle
import sys
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.wire.errors import UnknownTopic
from penstock.client.wire.settings import WireSettings
from penstock.spark.options.errors import OptionError
from penstock.spark.planning.errors import PlanError
from penstock.spark.reading import stream as stream_module
from penstock.spark.reading.batch import BatchReader, FilteringBatchReader
from penstock.spark.reading.fixed_schema import check_schema
from penstock.spark.reading.group_progress import (
    PAUSE_AFTER_TROUBLE_S,
    GroupProgress,
)
from penstock.spark.reading.stream import StreamReader
from penstock.spark.reading.topic_range import TopicRange
from penstock.spark.source import PenstockSource, takes_filters
from tests.unit.spark.reading.fake_cluster import FakeCluster, Log, options, place


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster(a=5)
    monkeypatch.setattr(stream_module, "WireCluster", lambda _: fake)
    return fake


def reader(**given: Any) -> StreamReader:
    return StreamReader(options(subscribe="a", startingOffsets="earliest", **given))


def test_each_finished_batch_is_committed_once_and_the_last_one_too(cluster: FakeCluster) -> None:
    query = reader(commitGroup="g")
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert cluster.commits == [], "nothing is finished yet"
    query.partitions(query.initialOffset(), end)
    # Spark looks for more, and finds nothing: no `commit` will come for this batch.
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert cluster.commits == [("g", {place("a"): 5})]
    query.commit(end)
    query.latestOffset(end, ReadAllAvailable())
    assert len(cluster.commits) == 1
    query.stop()
    assert cluster.is_closed


@pytest.mark.parametrize(
    "given",
    [{"startingOffsets": '{"a": {"0": 2}}'}, {"startingTimestamp": 102}],
)
def test_a_first_batch_is_repeated_even_if_the_options_fit_no_more(
    cluster: FakeCluster, given: dict[str, Any]
) -> None:
    cluster.logs[place("a")].times = {n: 100 + n for n in range(5)}
    chosen = options(subscribe="a", **given)
    query = StreamReader(chosen)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    # The process died in that batch; since then the topic has got a partition without records.
    cluster.logs[place("a", 1)] = Log()
    again = StreamReader(chosen)
    (wanted,) = again.partitions(again.initialOffset(), end)
    assert isinstance(wanted, TopicRange)
    assert (wanted.place, wanted.start, wanted.stop) == (place("a"), 2, 5)
    assert again.latestOffset(end, ReadAllAvailable()) == {"a": {"0": 5, "1": 0}}


def test_a_start_that_can_not_be_found_is_told_when_a_batch_shall_begin_there(
    cluster: FakeCluster,
) -> None:
    query = StreamReader(options(subscribe="a", startingOffsets='{"a": {"7": 2}}'))
    start = query.initialOffset()
    with pytest.raises(PlanError, match="must name exactly the partitions"):
        query.latestOffset(start, ReadAllAvailable())
    missing = StreamReader(options(subscribe="b"))
    with pytest.raises(UnknownTopic, match="Topic b does not exist"):
        missing.latestOffset(missing.initialOffset(), ReadAllAvailable())
    cluster.logs[place("b")] = Log(end=3)
    # Spark asks twice, and what it hears last counts.
    assert missing.latestOffset(missing.initialOffset(), ReadAllAvailable())["b"] == {"0": 3}


def test_trouble_with_a_commit_is_told_once_and_harms_nobody(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 100.0
    progress = GroupProgress(cluster.wire, "g", clock=lambda: now_s)
    cluster.commit_fails_with = "Group g has active members."
    with caplog.at_level(logging.WARNING):
        progress.reached({place("a"): 1})
        now_s += PAUSE_AFTER_TROUBLE_S
        progress.reached({place("a"): 2})
    assert caplog.text.count("Group g has active members.") == 1
    cluster.commit_fails_with = None
    progress.reached({place("a"): 2})
    assert cluster.commits == [], "the query is not held up by one attempt after another"
    now_s += PAUSE_AFTER_TROUBLE_S
    progress.reached({place("a"): 2})
    assert cluster.commits == [("g", {place("a"): 2})]


@pytest.fixture
def made(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[WireSettings]:
    """The settings of all clients."""
    found: list[WireSettings] = []

    def make(settings: WireSettings) -> FakeCluster:
        found.append(settings)
        return cluster

    monkeypatch.setattr(stream_module, "WireCluster", make)
    return found


def test_a_commit_is_given_little_time(made: list[WireSettings]) -> None:
    query = reader(commitGroup="g")
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    query.commit(end)
    _, hurried = made
    assert max(hurried.retry_timeout_s, hurried.first_contact_timeout_s) <= 5


def test_only_a_query_that_never_read_is_impatient_at_its_start(made: list[WireSettings]) -> None:
    new = reader()
    end = new.latestOffset(new.initialOffset(), ReadAllAvailable())
    reader().latestOffset(end, ReadAllAvailable())
    reader().partitions(end, end)
    once = reader()
    once.prepareForTriggerAvailableNow()
    assert [one.first_contact_timeout_s for one in made] == [5, 600, 600, 5]


def test_limits_and_latest_offsets_are_told_to_spark(cluster: FakeCluster) -> None:
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader(maxOffsetsPerTrigger=3).getDefaultReadLimit() == ReadMaxRows(3)
    assert reader(minOffsetsPerTrigger=3).getDefaultReadLimit() == ReadMinRows(3)
    query = reader(maxOffsetsPerTrigger=3)
    assert query.reportLatestOffset() is None
    end = query.latestOffset(query.initialOffset(), ReadMaxRows(3))
    assert end["a"] == {"0": 3}
    assert query.reportLatestOffset() == {"a": {"0": 5}}


def test_settings_without_effect_are_logged_where_a_query_is_planned(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    query = reader(**{"kafka.check.crcs": "false"})
    assert caplog.text == ""
    query.initialOffset()
    query.initialOffset()
    assert caplog.text.count("kafka.check.crcs") == 1


def test_readers_travel_without_their_connections(cluster: FakeCluster) -> None:
    query = reader(commitGroup="g")
    query.latestOffset(query.initialOffset(), ReadAllAvailable())
    copy = pickle.loads(pickle.dumps(query))
    assert copy._planner is None
    batch = FilteringBatchReader(options(streaming=False, subscribe="a"))
    assert list(batch.pushFilters([EqualTo(("partition",), 1)])) == []
    assert isinstance(pickle.loads(pickle.dumps(batch)), BatchReader)
    wanted = pickle.loads(pickle.dumps(TopicRange("a", 1, 2, 3)))
    assert (wanted.place, wanted.start, wanted.stop) == (place("a", 1), 2, 3)


def test_a_partition_of_sparks_own_making_is_empty() -> None:
    batch = BatchReader(options(streaming=False, subscribe="a"))
    assert list(batch.read(InputPartition(None))) == []


def test_filters_are_only_taken_where_spark_pushes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    source = PenstockSource({"subscribe": "a", "kafka.bootstrap.servers": "x:1"})
    worker = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.delitem(sys.modules, worker, raising=False)
    assert not takes_filters()
    assert type(source.reader(SCHEMA)) is BatchReader
    monkeypatch.setitem(sys.modules, worker, object())
    assert type(source.reader(SCHEMA)) is FilteringBatchReader


# As Spark parses the source's own schema, which can only be done inside a session.
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def test_a_stream_with_wrong_options_refuses_the_first_question() -> None:
    """PySpark would hide an exception from the making of the reader."""
    wrong = {"subscribe": "a", "kafka.bootstrap.servers": "x:1", "endingOffsets": "latest"}
    query = PenstockSource(wrong).streamReader(SCHEMA)
    copy = pickle.loads(pickle.dumps(query))
    for ask in (query.initialOffset, query.getDefaultReadLimit, copy.initialOffset):
        with pytest.raises(OptionError, match="endingOffsets"):
            ask()


def test_a_schema_may_only_repeat_what_the_topic_has() -> None:
    check_schema(StructType([SCHEMA["key"], SCHEMA["offset"]]), ("key", "offset"))
    with pytest.raises(OptionError, match="The schema of a topic is fixed"):
        check_schema(StructType().add("value", "string"), ("value",))
