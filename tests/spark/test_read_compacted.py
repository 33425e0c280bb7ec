"""A compacted topic: what is left of it is read, with its gaps, whole and in parts."""

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.test_upkeep import is_compacted
from tests.spark.reading import batch, offsets
from tests.spark.rig import Record, produce, rows
from tests.waiting import wait_until

FILL = b"x" * 50_000
SEGMENT_BYTES = 1 << 20


def test_a_compacted_topic_is_read_with_its_gaps(
    spark: SparkSession, make_broker: MakeBroker
) -> None:
    broker = make_broker("--set", "log.retention.check.interval.ms=200").start()
    topic = create_topic(
        broker.bootstrap,
        cleanup_policy="compact",
        segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
    )
    keys = (b"a", b"b", b"c")
    written = [Record(key=key, value=b"%d " % n + FILL) for n in range(30) for key in keys]
    # The active segment is never compacted, so it takes more to close what was written above.
    filler = [Record(key=b"filler", value=FILL)] * 25
    produce(broker.bootstrap, topic, [*written, Record(key=b"a", value=None), *filler])
    end = len(written) + 1 + len(filler)
    # A round that began while there was more to come is followed by another one: only the last
    # leaves a topic that stays as it is while Spark reads it.
    wait_until("compaction", lambda: is_compacted(broker, topic, end))

    frame = batch(spark, broker.bootstrap, subscribe=topic)
    expected = left(broker.bootstrap, topic, end)

    assert [row.offset for row in rows(frame.select("offset"))] == expected
    assert len(expected) < 60
    parts = batch(spark, broker.bootstrap, subscribe=topic, minPartitions=5, columns="offset,key")
    assert [row.offset for row in rows(parts)] == expected
    middle = f'{{"{topic}": {{"0": 10}}}}'
    after = batch(spark, broker.bootstrap, subscribe=topic, startingOffsets=middle)
    assert [offset for _, offset in offsets(after)] == [n for n in expected if n >= 10]


def left(bootstrap: str, topic: str, end: int) -> list[int]:
    """The offsets that another client finds."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []

    def read() -> bool:
        messages = consumer.consume(500, 0.2)
        found.extend(one.offset() for one in messages if one.error() is None)
        return bool(found) and found[-1] == end - 1

    wait_until("the end of the topic", read)
    consumer.close()
    return found
