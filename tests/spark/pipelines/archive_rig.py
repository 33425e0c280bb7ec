"""What tests of archive and replay share: runs of both in the session at hand, and topics."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.client import Admin
from penstock.pipelines.archives.archiving import Archiving, Wanted
from penstock.pipelines.archives.ledger import Entry
from penstock.pipelines.archives.replay_target import target_topic
from penstock.pipelines.archives.replay_task import Outcome, PartitionReplay, run_replay
from penstock.pipelines.archives.replaying import Archived, Replaying, ReplayWanted
from penstock.pipelines.archives.selection import Selection
from penstock.pipelines.archives.topic_facts import topic_facts
from penstock.pipelines.archives.verifying import Verdict, Verification
from tests.spark.rig import finish, started
from tests.spark.topic_contents import Stored

ARCHIVE_TIMEOUT_S = 240.0


def archive(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    root: Path,
    *,
    steps: Callable[[str], None] = lambda step: None,
    **wanted: Any,
) -> list[Entry]:
    """Archive what the topic holds now; the epochs that this added."""
    entries: list[Entry] = []
    archiving = Archiving(
        Wanted(root=root, bootstrap=bootstrap, is_once=True, **wanted),
        topic_facts(Admin(bootstrap), topic),
        archived=entries.append,
        steps=steps,
    )
    with archiving:
        finish(started(lambda: archiving.start(spark)), ARCHIVE_TIMEOUT_S)
    return entries


def replay(
    spark: SparkSession,
    bootstrap: str,
    root: Path,
    topic: str,
    selection: Selection | None = None,
    task: Callable[[PartitionReplay], Outcome] = run_replay,
    **wanted: Any,
) -> tuple[int, bool]:
    """How many records are back, and whether an earlier run had begun with it."""
    chosen = ReplayWanted(
        root=root, bootstrap=bootstrap, selection=selection or Selection(), **wanted
    )
    archived = Archived(root)
    archived.check(chosen.selection)
    target = target_topic(Admin(bootstrap), topic, archived.description)
    replaying = Replaying(chosen, archived, target)
    try:
        return replaying.run(spark, task), replaying.is_resumed
    finally:
        replaying.close()


def verify(root: Path) -> Verdict:
    return Verification(root).run()


def without_offsets(records: Sequence[Stored]) -> list[tuple[Any, ...]]:
    """By partition and in order: all that a record is but its offset."""
    return [(one.partition, one.key, one.value, one.headers, one.timestamp_ms) for one in records]
