"""What a replay has to remember: which records it brings back, and where in the target they begin.

How far it came is not written down: that is the end of each target partition. Notes are kept in the
folder `_replays` of the archive.
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.pipelines.archives.json_files import read_json, write_json
from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.lakes.full_disk import full_disk_explained

FOLDER = "_replays"


class State(StrEnum):
    UNFINISHED = "unfinished"
    FINISHED = "finished"
    ABANDONED = "abandoned"
    """Another one to the same topic began before it was finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNote:
    replay: str
    """Its id, which is the name of its file."""
    topic: str
    topic_id: str
    selection: Mapping[str, Any]
    spans: tuple[Span, ...]
    """What of each partition is brought back: the archive may grow meanwhile."""
    bases: Mapping[int, int]
    """By partition: the end of the target before the first record."""
    state: State = State.UNFINISHED
    words: Mapping[str, str] = field(default_factory=dict)
    """How long ago the times of the selection were, where they were given like that."""

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "selection": dict(self.selection),
            "spans": [[span.partition, span.start, span.stop] for span in self.spans],
            "bases": {str(partition): base for partition, base in self.bases.items()},
            "state": str(self.state),
            "words": dict(self.words),
        }


def new_replay_id() -> str:
    return secrets.token_hex(8)


def write_note(root: Path, note: ReplayNote) -> None:
    with full_disk_explained(f"the archive {root}", ArchiveRefused):
        write_json(_path(root, note.replay), note.to_json())


def notes(root: Path) -> Iterator[ReplayNote]:
    folder = root / FOLDER
    for path in sorted(folder.glob("*.json")) if folder.exists() else ():
        yield _read(path)


def _path(root: Path, replay: str) -> Path:
    return root / FOLDER / f"{replay}.json"


def _read(path: Path) -> ReplayNote:
    content = read_json(path)
    try:
        return ReplayNote(
            replay=path.stem,
            topic=content["topic"],
            topic_id=content["topic_id"],
            selection=content["selection"],
            spans=tuple(
                Span(partition=one, start=start, stop=stop) for one, start, stop in content["spans"]
            ),
            bases={int(partition): base for partition, base in content["bases"].items()},
            state=State(content["state"]),
            words=dict(content.get("words", {})),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArchiveRefused(
            f"The file {path} is damaged: it does not describe a replay."
        ) from None
