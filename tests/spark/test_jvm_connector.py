"""Proves that Spark's own Kafka connector works on Penstock, and that a job written for it gives
the same rows, row by row, when the one word `kafka` becomes `penstock`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.e2e.clients import CODECS
from tests.e2e.conftest import create_topic
from tests.e2e.processes import Broker
from tests.spark import rig
from tests.spark.rig import Output, Record, finish, rows, started

pytestmark = pytest.mark.slow

FORMATS = ("kafka", "penstock")
PARTITIONS = 3
LIMIT = 30
FIRST_MS = 1_700_000_000_000
# Every shape of a record: with and without key, value and headers, and each of them empty.
SHAPES = (
    Record(b"plain", b"key"),
    Record(None, b"a value that is null"),
    Record(b"a key that is null", None),
    Record(b"", b""),
    Record(b"headers", b"h", [("trace", b"1"), ("trace", b"2"), ("null", None), ("", b"")]),
    Record(bytes(range(256)), bytes(range(255, -1, -1))),
    Record(b"x" * 50_000, b"large"),
    *(Record(b"filler", b"key-%d" % number) for number in range(8)),
)
# Rows for the sinks. A key of each length, since the hash takes four bytes at a time.
KEYED = """
    SELECT CAST(concat(repeat('k', CAST(id % 9 AS INT)), id % 40) AS {kind}) AS key,
           CAST(id AS {kind}) AS value
    FROM range(0, 400, 1, 2)
"""
# Named parts of a job's reading options; `{topic}` and `{time}` are filled in.
READS = {
    "everything": {"subscribe": "{topic}"},
    "headers": {"subscribe": "{topic}", "includeHeaders": "true"},
    "pattern": {"subscribePattern": "{topic}.*"},
    "assigned": {"assign": '{{"{topic}":[0,2]}}'},
    "offsets": {
        "subscribe": "{topic}",
        "startingOffsets": '{{"{topic}":{{"0":3,"1":-2,"2":5}}}}',
        "endingOffsets": '{{"{topic}":{{"0":9,"1":7,"2":-1}}}}',
    },
    "time": {"subscribe": "{topic}", "startingTimestamp": "{time}"},
    "time of each partition": {
        "subscribe": "{topic}",
        "startingOffsetsByTimestamp": '{{"{topic}":{{"0":{time},"1":0,"2":{time}}}}}',
        "endingOffsetsByTimestamp": '{{"{topic}":{{"0":{time},"1":{time},"2":{late}}}}}',
    },
    "split": {"subscribe": "{topic}", "minPartitions": "8"},
    "split by count": {"subscribe": "{topic}", "maxRecordsPerPartition": "4"},
}

MakeJob = Callable[[str], DataFrame]


@pytest.fixture(scope="module")
def history(broker: Broker) -> str:
    """A topic with all shapes of records, in batches of several codecs, with rising times."""
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS, retention_ms="-1")
    for number, codec in enumerate(CODECS):
        began_ms = FIRST_MS + number * 10_000
        records = [
            shape._replace(timestamp_ms=began_ms + 500 * place)
            for place, shape in enumerate(SHAPES)
        ]
        rig.produce(broker.bootstrap, topic, records, codec=codec)
    return topic


def reading(spark: SparkSession, source: str, broker: Broker, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    return spark.read.format(source).options(**settings).load()


def streaming(spark: SparkSession, source: str, broker: Broker, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    return spark.readStream.format(source).options(**settings | options).load()


def payload(row: Row) -> tuple[object, ...]:
    """A record as it was produced; what the broker added is left out."""
    headers = [(header.key, header.value) for header in row.headers or ()]
    return row.key, row.value, headers


def test_the_connector_reads_a_batch(jvm_spark: SparkSession, broker: Broker, history: str) -> None:
    found = rows(reading(jvm_spark, "kafka", broker, subscribe=history, includeHeaders="true"))
    expected = [(each.key, each.value, list(each.headers)) for each in SHAPES] * len(CODECS)
    assert sorted(map(repr, map(payload, found))) == sorted(map(repr, expected))


@pytest.mark.parametrize("name", READS)
def test_the_same_batch(jvm_spark: SparkSession, broker: Broker, history: str, name: str) -> None:
    """All columns and types are the same, and so is each row."""
    places = {"topic": history, "time": FIRST_MS + 23_456, "late": FIRST_MS + 41_000}
    options = {key: value.format(**places) for key, value in READS[name].items()}
    theirs, ours = (reading(jvm_spark, source, broker, **options) for source in FORMATS)
    assert [(field.name, field.dataType) for field in ours.schema] == [
        (field.name, field.dataType) for field in theirs.schema
    ]
    expected = rows(theirs)
    assert len(expected) > PARTITIONS
    assert rows(ours) == expected


def test_the_same_stream(
    jvm_spark: SparkSession, broker: Broker, history: str, tmp_path: Path
) -> None:
    """A limit cuts both at the same offsets, and a restart goes on where the first run ended."""
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    results = {}
    for source in FORMATS:
        options = {"subscribePattern": f"{history}|{topic}", "maxOffsetsPerTrigger": str(LIMIT)}
        results[source] = Run(
            streaming(jvm_spark, source, broker, **options, includeHeaders="true"),
            tmp_path / source,
        )
    for run in results.values():
        run.until_now()
    rig.produce(broker.bootstrap, topic, SHAPES, codec="zstd")
    for run in results.values():
        run.until_now()
    theirs, ours = results.values()
    assert len(theirs.rows()) == len(SHAPES) * (len(CODECS) + 1)
    assert ours.rows() == theirs.rows()
    assert ours.ends == theirs.ends
    assert len(ours.ends) >= len(SHAPES) * len(CODECS) // LIMIT


class Run:
    """One streaming job, run several times, with the end of each of its micro-batches."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        self.frame = frame
        self.output = Output(folder)
        self.ends: list[dict[str, dict[str, int]]] = []

    def until_now(self) -> None:
        query = self.output.start(self.frame, availableNow=True)
        finish(query)
        self.ends += list(ends_of([progress["sources"][0] for progress in query.recentProgress]))

    def rows(self) -> list[Row]:
        return self.output.rows(self.frame)


def ends_of(sources: list[dict[str, str]]) -> Iterator[dict[str, dict[str, int]]]:
    """The offsets by topic at which micro-batches with rows ended."""
    for source in sources:
        if source["numInputRows"]:
            end = json.loads(source["endOffset"])
            yield {topic: offsets for topic, offsets in end.items() if not topic.startswith("@")}


def written(spark: SparkSession, broker: Broker, topic: str) -> list[tuple[object, ...]]:
    """What a sink wrote, by partition and in its order; keys keep theirs among themselves."""
    found = rows(reading(spark, "kafka", broker, subscribe=topic, includeHeaders="true"))
    placed = [(row.partition, *payload(row)) for row in found]
    return sorted(placed, key=lambda each: (each[0], each[1] or b""))


@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
def test_the_same_partition_for_each_key(
    jvm_spark: SparkSession, broker: Broker, kind: str
) -> None:
    """Seven partitions, so that a wrong hash can't hide; the rows of a key keep their order."""
    # The cast of a number to bytes depends on its width and would not be readable here.
    query = KEYED.format(kind="STRING")
    frame = jvm_spark.sql(query).selectExpr(f"CAST(key AS {kind})", f"CAST(value AS {kind})")
    topics = {source: create_topic(broker.bootstrap, partitions=7) for source in FORMATS}
    for source, topic in topics.items():
        write(frame.coalesce(1), source, broker, topic=topic)
    theirs, ours = (written(jvm_spark, broker, topic) for topic in topics.values())
    assert len(theirs) == 400
    assert len({partition for partition, *_ in theirs}) == 7
    assert ours == theirs


def test_the_same_partitions_topics_and_headers_from_columns(
    jvm_spark: SparkSession, broker: Broker
) -> None:
    results = []
    for source in FORMATS:
        topics = [create_topic(broker.bootstrap, partitions=PARTITIONS) for _ in range(2)]
        frame = jvm_spark.sql(f"""
            SELECT IF(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic,
                   CAST(id % {PARTITIONS} AS INT) AS partition,
                   CAST(NULL AS BINARY) AS key,
                   IF(id % 5 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS value,
                   IF(id % 3 = 0, NULL, array(
                       named_struct('key', 'trace', 'value', CAST('1' AS BINARY)),
                       named_struct('key', 'trace', 'value', CAST(NULL AS BINARY)),
                       named_struct('key', '', 'value', CAST('' AS BINARY)))) AS headers
            FROM range(0, 60, 1, 2)
        """)
        write(frame.coalesce(1), source, broker)
        results.append([written(jvm_spark, broker, topic) for topic in topics])
    theirs, ours = results
    assert [len(topic) for topic in theirs] == [30, 30]
    assert ours == theirs


def write(frame: DataFrame, source: str, broker: Broker, **options: str) -> None:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    frame.write.format(source).mode("append").options(**settings).save()


# The history that is read above has batches of every codec.
@pytest.mark.parametrize(
    "codec",
    [
        "zstd",
        *(pytest.param(codec, marks=pytest.mark.soak) for codec in CODECS if codec != "zstd"),
    ],
)
def test_each_reads_what_the_other_wrote(
    jvm_spark: SparkSession, broker: Broker, codec: str
) -> None:
    topics = {source: create_topic(broker.bootstrap, partitions=2) for source in FORMATS}
    frame = jvm_spark.sql(KEYED.format(kind="STRING")).coalesce(1)
    for source, topic in topics.items():
        write(frame, source, broker, topic=topic, **{"kafka.compression.type": codec})
    theirs, ours = topics.values()
    expected = rows(reading(jvm_spark, "penstock", broker, subscribe=theirs).drop("timestamp"))
    found = rows(reading(jvm_spark, "kafka", broker, subscribe=ours).drop("timestamp"))
    assert len(expected) == 400
    place = ("partition", "offset", "key", "value")
    assert [[row[name] for name in place] for row in found] == [
        [row[name] for name in place] for row in expected
    ]


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("kafka", "penstock"),
        ("penstock", "kafka"),
        pytest.param("kafka", "kafka", marks=pytest.mark.soak),
        pytest.param("penstock", "penstock", marks=pytest.mark.soak),
    ],
)
def test_a_stream_from_topic_to_topic(
    jvm_spark: SparkSession, broker: Broker, history: str, tmp_path: Path, source: str, sink: str
) -> None:
    """Each source works with each sink; each key lands where it did before."""
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    frame = streaming(jvm_spark, source, broker, subscribe=history, includeHeaders="true")
    writer = (
        frame.select("key", "value", "headers")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    finish(started(writer.start))
    keyed = [each for each in written(jvm_spark, broker, topic) if each[1] is not None]
    assert keyed == [each for each in written(jvm_spark, broker, history) if each[1] is not None]
