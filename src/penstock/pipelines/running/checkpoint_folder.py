"""What Spark keeps in the folder of a checkpoint, as far as a runner has to know it.

`metadata` holds the query's id, `offsets/<batch>` is written when a batch is planned, and
`commits/<batch>` when it has been written. Old batches are removed, the latest never.
"""

import json
from pathlib import Path

from penstock.model.ids import TopicPartition
from penstock.spark.planning.errors import PlanError
from penstock.spark.reading.stream_offsets import StreamOffset

# Spark knows nothing of folders that are given without a scheme but its own default file system.
SCHEME = "file://"


def location(checkpoint: Path) -> str:
    """The folder as Spark is told of it: this machine's, whatever its default file system is."""
    return SCHEME + str(checkpoint.absolute())


def query_id(checkpoint: Path) -> str | None:
    """The id that was born with the checkpoint; None before the query's first start."""
    try:
        content = json.loads((checkpoint / "metadata").read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return str(content["id"]) if isinstance(content, dict) and "id" in content else None


def last_planned(checkpoint: Path) -> int | None:
    """The greatest batch whose offsets are fixed: a restart runs it again or has it behind it."""
    return _last_batch(checkpoint / "offsets")


def last_committed(checkpoint: Path) -> int | None:
    return _last_batch(checkpoint / "commits")


def planned_ranges(checkpoint: Path, batch: int) -> dict[TopicPartition, range]:
    """The offsets of topics that a batch reads; sources of other kinds have none."""
    before = _positions(checkpoint, batch - 1)
    found: dict[TopicPartition, range] = {}
    for source, end in _positions(checkpoint, batch).items():
        starts = end.first_start
        if starts is None:
            starts = before[source].position if source in before else {}
        for place, offset in end.position.items():
            if offsets := range(starts.get(place, 0), offset):
                found[place] = offsets
    return found


def _positions(checkpoint: Path, batch: int) -> dict[int, StreamOffset]:
    """Of each source that is a topic, by its number: where it is after the batch.

    The file has a line for its version, one for the batch as a whole, and one for each source.
    """
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {}
    for source, line in enumerate(lines[2:]):
        try:
            found[source] = StreamOffset.from_json(json.loads(line))
        except (PlanError, ValueError, AttributeError):
            # A table, files, or a source of which nothing has been read.
            continue
    return found


def clear_unplanned(checkpoint: Path) -> None:
    """Remove what is left of a first batch that could not even be planned; before a start.

    A full disk or a kill leaves an unfinished file in `offsets`. Spark takes it for the work of
    another query, and refuses to begin.
    """
    folder = checkpoint / "offsets"
    if not folder.is_dir() or last_planned(checkpoint) is not None:
        return
    for file in list(folder.iterdir()):
        if file.name.startswith("."):
            file.unlink()


def _last_batch(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    # Beside the batches there are checksums and files that are being written.
    batches = (int(file.name) for file in folder.iterdir() if file.name.isdecimal())
    return max(batches, default=None)
