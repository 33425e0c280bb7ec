"""A program that archives one topic and brings another archive back, until it is killed.

Run by test_killed_runs.py in a process of its own. Arguments: bootstrap, the topic and the folder
of the archive that grows, the folder of the archive that is brought back, the topic it goes to.
"""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyarrow import RecordBatch

import penstock.spark
from penstock.client import Admin
from penstock.pipelines.archives import replay_task
from penstock.pipelines.archives.archived_rows import Stretch, archived_rows
from penstock.pipelines.archives.archiving import Archiving, Wanted
from penstock.pipelines.archives.replay_task import Outcome, PartitionReplay
from penstock.pipelines.archives.topic_facts import topic_facts
from tests.spark.pipelines.archive_rig import replay

OFFSETS_PER_EPOCH_MAX = 5_000
ROWS_AT_A_TIME = 300
PAUSE_S = 0.05


def replay_slowly(wanted: PartitionReplay) -> Outcome:
    """Long enough to be killed in the middle."""

    def slowly(stretch: Stretch) -> Iterator[RecordBatch]:
        for batch in archived_rows(stretch):
            for begin in range(0, batch.num_rows, ROWS_AT_A_TIME):
                yield batch.slice(begin, ROWS_AT_A_TIME)
                time.sleep(PAUSE_S)

    replay_task.archived_rows = slowly
    return replay_task.run_replay(wanted)


def main(bootstrap: str, topic: str, folder: str, other: str, target: str) -> None:
    spark = penstock.spark.session(
        "doomed", master="local[4]", settings={"spark.ui.enabled": "false"}
    )
    wanted = Wanted(
        root=Path(folder),
        bootstrap=bootstrap,
        interval="0 seconds",
        offsets_per_batch_max=OFFSETS_PER_EPOCH_MAX,
    )
    replaying = threading.Thread(
        target=replay,
        args=(spark, bootstrap, Path(other), target),
        kwargs={"task": replay_slowly},
        daemon=True,
    )
    with Archiving(wanted, topic_facts(Admin(bootstrap), topic)) as archiving:
        query = archiving.start(spark)
        replaying.start()
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
