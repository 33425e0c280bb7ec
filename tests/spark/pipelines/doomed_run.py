"""A program that archives one topic and brings another archive back, until it is killed.

However fast the one is and however slow the other, neither comes to its end: both stand still
where they have done a part, if they live so long.

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
# Both are less than half of what the test has.
EPOCHS_MAX = 10
ROWS_PER_PARTITION_MAX = 25_000
ROWS_AT_A_TIME = 300
PAUSE_S = 0.05


def replay_slowly(wanted: PartitionReplay) -> Outcome:
    """In pieces, so that it is killed in the middle."""

    def slowly(stretch: Stretch) -> Iterator[RecordBatch]:
        taken = 0
        for batch in archived_rows(stretch):
            for begin in range(0, batch.num_rows, ROWS_AT_A_TIME):
                yield batch.slice(begin, ROWS_AT_A_TIME)
                time.sleep(PAUSE_S)
                taken += ROWS_AT_A_TIME
                if taken >= ROWS_PER_PARTITION_MAX:
                    stand_still()

    replay_task.archived_rows = slowly
    return replay_task.run_replay(wanted)


class Epochs:
    """Counts those that are committed."""

    def __init__(self) -> None:
        self._committed = 0

    def __call__(self, step: str) -> None:
        self._committed += step == "committed"
        if self._committed == EPOCHS_MAX:
            stand_still()


def stand_still() -> None:
    threading.Event().wait()


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
    facts = topic_facts(Admin(bootstrap), topic)
    with Archiving(wanted, facts, steps=Epochs()) as archiving:
        query = archiving.start(spark)
        replaying.start()
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
