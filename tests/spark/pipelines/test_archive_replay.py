"""Proves that a topic that was archived and brought back is the same topic.

That holds for each format of table, each codec, and every shape of a record; for topics with gaps,
in another place, and in parts. What retention took before it was archived is said, not passed over.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client import Admin
from penstock.pipelines.archives.reading import archive_frame
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.selection import Selection
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.specification.model import LakeFormat
from penstock.pipelines.specification.reading import read_pipeline
from tests.e2e.conftest import MakeBroker, MakeTopic, create_topic
from tests.e2e.processes import Broker
from tests.spark import rig
from tests.spark.conftest import Produce
from tests.spark.pipelines.archive_rig import archive, replay, verify, without_offsets
from tests.spark.reading import Admin as Operator
from tests.spark.reading import last_line
from tests.spark.rig import Record
from tests.spark.test_read_compacted import FILL, left
from tests.spark.topic_contents import Stored, stored
from tests.waiting import wait_until

PARTITIONS = 4
ATTEMPTS_MAX = 20
BEGIN_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHAPES = (
    Record(value=b"plain"),
    Record(value=None, key=b"tombstone"),
    Record(value=b"", key=b""),
    Record(value=b"many", key=b"k", headers=(("a", b"1"), ("b", b""), ("a", None), ("a", b"1"))),
    Record(value="ü".encode() * 200, headers=(("", b"nameless"), ("ü", b"\x00\xff"))),
)

HISTORY = """\
pipeline: history
sources:
  old: {{archive: {archive}, decode: text}}
steps:
  plain: {{sql: "SELECT text, offset FROM old WHERE text = 'plain'"}}
flows:
  plain: {{from: plain, to: {{parquet: plain}}}}
"""


def every_shape() -> Iterator[Record]:
    """In all partitions but the last, which stays empty; times neither ascend nor repeat."""
    for number in range(60):
        for partition in range(PARTITIONS - 1):
            shape = SHAPES[(number + partition) % len(SHAPES)]
            moment = BEGIN_MS + (number * 7_919) % 1_000 + partition * 100_000
            yield shape._replace(partition=partition, timestamp_ms=moment)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_archived_topic_comes_back_identical(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic(partitions=PARTITIONS, retention_ms="-1")
    for codec in CODECS:
        produce(topic, list(every_shape()), codec=codec)
    source = stored(broker.bootstrap, topic)
    assert len(source) == 60 * (PARTITIONS - 1) * len(CODECS)

    for lake_format, codec in zip(LakeFormat, ("none", "zstd", "lz4"), strict=True):
        root = tmp_path / lake_format
        entries = archive(
            spark, broker.bootstrap, topic, root, format=lake_format, offsets_per_batch_max=500
        )
        assert [entry.rows for entry in entries] == [498, 402]
        verdict = verify(root)
        assert (verdict.findings, verdict.rows) == ((), len(source))
        target = f"{topic}-{lake_format}"
        records, is_resumed = replay(spark, broker.bootstrap, root, target, compression=codec)
        assert (records, is_resumed) == (len(source), False)
        assert stored(broker.bootstrap, target) == source
        assert len(Admin(broker.bootstrap).topics.partitions(target)) == PARTITIONS
        with pytest.raises(
            ArchiveRefused, match=r"was already replayed into topic .*; with --again"
        ):
            replay(spark, broker.bootstrap, root, target)

        # As a table it has a topic's columns, with the original offsets.
        frame = archive_frame(spark, str(root), False, {})
        live = spark.read.format("penstock").option("subscribe", topic)
        live = live.option("kafka.bootstrap.servers", broker.bootstrap)
        assert frame.schema == live.option("includeHeaders", "true").load().schema
        found = rig.rows(frame.select("topic", "partition", "offset", "timestampType"))
        assert [(row.partition, row.offset) for row in found] == [
            (one.partition, one.offset) for one in source
        ]
        assert {(row.topic, row.timestampType) for row in found} == {(topic, 0)}

    # A pipeline reads it like a topic, as a stream.
    counted = run_over_archive(spark, tmp_path, tmp_path / LakeFormat.DELTA)
    assert counted == len([one for one in source if one.value == b"plain"])

    # A part of it, by offsets and by times, behind what is there already.
    root, target = tmp_path / LakeFormat.PARQUET, f"{topic}-{LakeFormat.DELTA}"
    part = Selection(
        from_offset={None: 20, 1: 25}, until_offset={0: 200}, until_ms=BEGIN_MS + 100_500
    )
    expected = [
        one
        for one in source
        if one.offset >= (25 if one.partition == 1 else 20)
        and (one.partition != 0 or one.offset < 200)
        and one.timestamp_ms < BEGIN_MS + 100_500
    ]
    assert replay(spark, broker.bootstrap, root, target, part) == (len(expected), False)
    added = [one for one in stored(broker.bootstrap, target) if one.offset >= 300]
    assert without_offsets(added) == without_offsets(expected)
    assert len({one.partition for one in expected}) == 2


def run_over_archive(spark: SparkSession, folder: Path, root: Path) -> int:
    """The rows that a pipeline finds in it whose value is `plain`."""
    path = folder / "history.yaml"
    path.write_text(HISTORY.format(archive=root))
    run_pipeline(read_pipeline(path, {}, environment={}), once=True, spark=spark)
    table = open_table(LakeFormat.PARQUET, str(folder / "plain"))
    return sum(parquet.read_metadata(file).num_rows for file in table.paths())


def archive_between_compactions(
    spark: SparkSession, bootstrap: str, topic: str, folder: Path
) -> tuple[Path, list[Stored]]:
    """An archive of the topic, and what the topic held all the while that it was made."""
    for attempt in range(ATTEMPTS_MAX):
        root = folder / f"archive-{attempt}"
        before = stored(bootstrap, topic)
        archive(spark, bootstrap, topic, root, is_by_date=True)
        if stored(bootstrap, topic) == before:
            return root, before
    raise AssertionError("compaction does not come to its end")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_compacted_topic_that_goes_on_is_archived_with_its_gaps(
    spark: SparkSession, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker("--set", "log.retention.check.interval.ms=200").start()
    bootstrap = broker.bootstrap
    topic = create_topic(
        bootstrap,
        partitions=1,
        cleanup_policy="compact",
        segment_bytes=str(1 << 20),
        min_cleanable_dirty_ratio="0.01",
    )
    written = [Record(key=b"%d" % (n % 3), value=b"%d " % n + FILL) for n in range(60)]
    filler = [Record(key=b"filler", value=FILL)] * 25
    rig.produce(bootstrap, topic, [*written, *filler])
    wait_until("compaction", lambda: len(left(bootstrap, topic, 85)) < 60)
    root, source = archive_between_compactions(spark, bootstrap, topic, tmp_path)
    # A second run goes on, with a partition more.
    Operator(bootstrap).grow(topic, 3)
    rig.produce(bootstrap, topic, [Record(key=b"new", partition=partition) for partition in (0, 1)])
    (entry,) = archive(spark, bootstrap, topic, root)
    assert (entry.rows, entry.partitions, dict(entry.ends)) == (2, 3, {0: 86, 1: 1})
    source += [one for one in stored(bootstrap, topic) if one.key == b"new"]
    assert verify(root).findings == ()
    frame = archive_frame(spark, str(root), False, {}).where("partition = 0")
    in_archive = [row.offset for row in rig.rows(frame.select("partition", "offset"))]
    assert in_archive == [one.offset for one in source if one.partition == 0]
    assert in_archive != list(range(len(in_archive)))
    stream = archive_frame(spark, str(root), True, {}).select("topic", "partition", "offset")
    streamed = rig.run_available_now(stream, tmp_path / "streamed")
    assert [row.offset for row in streamed if row.partition == 0] == in_archive

    target = f"{topic}-back"
    replay(spark, bootstrap, root, target)
    assert without_offsets(stored(bootstrap, target)) == sorted(without_offsets(source))
    assert len(Admin(bootstrap).topics.partitions(target)) == 3


@pytest.mark.timeout(600)
def test_retention_that_overtook_the_archive_is_said(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    produce(topic, [b"value"] * 4)
    Operator(broker.bootstrap).delete_records(topic, 0, before=2)
    archive(spark, broker.bootstrap, topic, tmp_path)
    produce(topic, [b"value"] * 6)
    Operator(broker.bootstrap).delete_records(topic, 0, before=7)
    with pytest.raises(PySparkException) as caught:
        archive(spark, broker.bootstrap, topic, tmp_path)
    assert f"partition 0 of topic {topic} from offset 4 up to 7 were deleted" in last_line(
        caught.value
    )
    assert (verify(tmp_path).rows, verify(tmp_path).findings) == (2, ())

    archive(spark, broker.bootstrap, topic, tmp_path, is_loss_allowed=True)
    verdict = verify(tmp_path)
    assert verdict.rows == 5
    assert verdict.findings == (
        "Partition 0: offsets 4 to 6 were deleted from the topic before they could be archived.",
    )

    # The topic's own place is not taken by another of its name.
    Operator(broker.bootstrap).delete(topic)
    create_topic(broker.bootstrap, topic)
    with pytest.raises(ArchiveRefused, match="was deleted and created again"):
        archive(spark, broker.bootstrap, topic, tmp_path)
