"""Archives a topic: a query whose tasks write files, and a ledger that says how far it came.

The ledger is the truth. Spark's checkpoint goes on where it fits, and is made again where it does
not: a new query begins at the offsets at which the ledger ends.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.settings import OUTAGE_S_MAX, WireSettings
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.pipelines.archives.archiving_task import Target
from penstock.pipelines.archives.description import (
    FOLDER,
    Description,
    checkpoint_of,
    read_description,
    write_description,
)
from penstock.pipelines.archives.ledger import Entry
from penstock.pipelines.archives.locking import only_one
from penstock.pipelines.archives.receipts_sink import ReceiptsSink
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.source import receipts_frame
from penstock.pipelines.archives.topic_facts import TopicFacts
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.running.checkpoint_folder import last_committed, query_id
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.queries import start_query
from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import LakeFormat, Options
from penstock.spark.options.kafka_settings import FIRST_CONTACT, OUTAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PIPELINE = "archive"
OFFSETS_PER_BATCH_MAX = 5_000_000
INTERVAL = "1 minute"
EARLIEST = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for; None leaves it to the archive that is there, or to the default."""

    root: Path
    """Absolute."""
    bootstrap: str
    format: LakeFormat | None = None
    is_by_date: bool | None = None
    options: Options = field(default_factory=dict)
    is_once: bool = False
    interval: str = INTERVAL
    is_loss_allowed: bool = False
    offsets_per_batch_max: int = OFFSETS_PER_BATCH_MAX
    outage_s_max: float = OUTAGE_S_MAX
    """How long brokers may be away."""


def described(wanted: Wanted, topic: TopicFacts) -> Description:
    """The archive as it is, or as it begins; refuses what does not fit to what is there."""
    found = read_description(wanted.root)
    if found is None:
        found = Description(
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            format=wanted.format or LakeFormat.PARQUET,
            is_by_date=bool(wanted.is_by_date),
            options=dict(wanted.options),
            settings=topic.kept_settings,
        )
        write_description(wanted.root, found)
        return found
    _check_topic(found, topic, wanted.root)
    _check_same(wanted.root, "another format", found.format, wanted.format)
    _check_same(wanted.root, "another choice of --by-date", found.is_by_date, wanted.is_by_date)
    _check_same(wanted.root, "other options", dict(found.options), dict(wanted.options) or None)
    return found


def _check_topic(found: Description, topic: TopicFacts, root: Path) -> None:
    if found.topic != topic.name:
        raise ArchiveRefused(
            f"The archive {root} is that of topic {found.topic}, not of topic {topic.name}."
        )
    if found.topic_id != topic.topic_id:
        raise ArchiveRefused(
            f"Topic {topic.name} was deleted and created again after the archive {root} was"
            " started: archive it somewhere else."
        )


def _check_same(root: Path, what: str, found: object, asked: object | None) -> None:
    if asked is not None and asked != found:
        raise ArchiveRefused(
            f"The archive {root} was started with {what} ({found}), which can't be changed."
        )


class Archiving:
    """One run; `archived` is called with each epoch. Use it as a context: it holds the archive."""

    def __init__(
        self,
        wanted: Wanted,
        topic: TopicFacts,
        *,
        archived: Callable[[Entry], None] = lambda entry: None,
        steps: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._wanted = wanted
        self._topic = topic
        # The facts about the topic came from its brokers, so their address is right.
        wire = WireSettings(bootstrap=wanted.bootstrap, retry_timeout_s=wanted.outage_s_max)
        self._cluster = WireCluster(wire.once_reached())
        self._lock = only_one(
            wanted.root / FOLDER / "lock",
            f"Another process is writing the archive {wanted.root}.",
        )
        self._archived = archived
        self._steps = steps
        self.gate = StopGate()
        self.failure: BaseException | None = None

    @property
    def flow(self) -> str:
        return self._topic.name

    @property
    def checkpoint(self) -> Path:
        return checkpoint_of(self._wanted.root)

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            ends.callback(self._cluster.close)
            ends.enter_context(self._lock)
            self._open()
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _open(self) -> None:
        self._description = described(self._wanted, self._topic)
        table = open_table(
            self._description.format, str(self._wanted.root), self._description.options
        )
        self._sink = ReceiptsSink(
            self._wanted.root,
            table,
            self._description,
            self._count_partitions,
            archived=self._archived,
            steps=self._steps,
        )

    def offsets_left(self) -> int:
        """How much there is to archive now."""
        latest = self._cluster.latest(self._places())
        earliest = self._cluster.earliest(latest)
        ends = self._sink.ends
        return sum(
            max(0, end - ends.get(int(place.partition), earliest[place]))
            for place, end in latest.items()
        )

    def start(self, spark: "SparkSession") -> "StreamingQuery":
        self._sink.note_partitions(self._count_partitions())
        if not checkpoint_fits(self.checkpoint, self._sink.last):
            shutil.rmtree(self.checkpoint)
        target = Target(
            root=str(self._wanted.root),
            is_by_date=self._description.is_by_date,
            keeps_partition_columns=keeps_partition_columns(self._description.format),
        )
        return start_query(
            receipts_frame(spark, self._source_options(), target),
            self._sink,
            pipeline=PIPELINE,
            flow=self.flow,
            checkpoint=self.checkpoint,
            interval=self._wanted.interval,
            once=self._wanted.is_once,
            mode="append",
            gate=self.gate,
            on_written=_ignore,
            on_failed=self._note_failure,
        )

    def _note_failure(self, error: BaseException) -> None:
        self.failure = error

    def _source_options(self) -> dict[str, str]:
        outage = f"{int(self._wanted.outage_s_max * 1000)}ms"
        return {
            "kafka.bootstrap.servers": self._wanted.bootstrap,
            OUTAGE: outage,
            FIRST_CONTACT: outage,
            # What a transaction took back is not a record of the topic.
            "kafka.isolation.level": "read_committed",
            "subscribe": self._topic.name,
            "includeHeaders": "true",
            "startingOffsets": self._starting_offsets(),
            "maxOffsetsPerTrigger": str(self._wanted.offsets_per_batch_max),
            "failOnDataLoss": "false" if self._wanted.is_loss_allowed else "true",
        }

    def _starting_offsets(self) -> str:
        ends = self._sink.ends
        offsets = {
            str(int(place.partition)): ends.get(int(place.partition), EARLIEST)
            for place in self._places()
        }
        return json.dumps({self._topic.name: offsets})

    def _count_partitions(self) -> int:
        return len(self._cluster.partitions([self._topic.name])[self._topic.name])

    def _places(self) -> list[TopicPartition]:
        name = TopicName(self._topic.name)
        count = self._count_partitions()
        return [TopicPartition(name, PartitionIndex(number)) for number in range(count)]


def checkpoint_fits(checkpoint: Path, last: Entry | None) -> bool:
    """One that is older or newer than the ledger, or not its own, would repeat or leave out."""
    if not checkpoint.exists():
        return True
    committed = last_committed(checkpoint)
    if last is None:
        return committed is None
    if query_id(checkpoint) != last.query:
        return False
    # A crash may have come between the sink's own commit and Spark's note of it.
    return committed in (last.batch, None if last.batch == 0 else last.batch - 1)


def _ignore(epoch: Epoch, written: Written) -> None:
    """The sink tells of what it has archived itself, by offsets."""
