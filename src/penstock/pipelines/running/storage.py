"""The folder in which a pipeline keeps what it has to remember: where each file of it is.

pipeline.json                   the pipeline's name and a random id
run.json, run.lock              the last run; the lock is held while a run lives
stop                            a request to stop, made by `penstock pipeline stop`
spark.log, spark.out            what Spark has to say
spark-home/                     links to the installed Spark, for a local one
flows/<flow>/checkpoint/        Spark's
flows/<flow>/flow.json          whose checkpoint it is, and what must not change in the flow
flows/<flow>/reset.json         a reset has allowed a new checkpoint
flows/<flow>/progress.jsonl     one line for each finished micro-batch
"""

import json
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.pipelines.lakes.durable_files import replace_file
from penstock.pipelines.running.refusals import RunRefused

PROGRESS = "progress.jsonl"


@dataclass(frozen=True, slots=True)
class FlowFolder:
    """What is kept of one flow."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def record(self) -> Path:
        return self.path / "flow.json"

    @property
    def reset(self) -> Path:
        return self.path / "reset.json"

    @property
    def progress(self) -> Path:
        return self.path / PROGRESS


@dataclass(frozen=True, slots=True)
class Storage:
    path: Path

    @property
    def identity(self) -> Path:
        return self.path / "pipeline.json"

    @property
    def run(self) -> Path:
        return self.path / "run.json"

    @property
    def lock(self) -> Path:
        return self.path / "run.lock"

    @property
    def stop(self) -> Path:
        return self.path / "stop"

    @property
    def flows(self) -> Path:
        return self.path / "flows"

    def flow(self, name: str) -> FlowFolder:
        return FlowFolder(self.flows / name)

    def exists(self) -> bool:
        return self.identity.exists()


def claim(storage: Storage, pipeline: str) -> str:
    """The random id of the pipeline whose folder this is; made at the first run.

    Raises RunRefused where the folder is another pipeline's.
    """
    found = read_json(storage.identity)
    if found is None:
        found = {"pipeline": pipeline, "id": uuid.uuid4().hex}
        write_json(storage.identity, found)
    if found["pipeline"] != pipeline:
        raise RunRefused(
            f"The storage {storage.path} belongs to the pipeline {found['pipeline']}, so the "
            f"pipeline {pipeline} can't use it: give it its own `storage:`."
        )
    return str(found["id"])


def read_json(path: Path) -> dict[str, Any] | None:
    """None: there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise RunRefused(f"The file {path} is damaged: it is not JSON.") from None
    if not isinstance(content, dict):
        raise RunRefused(f"The file {path} is damaged: it does not hold a JSON object.")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """There whole or not at all, whenever the process or the machine ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(content, indent=2).encode() + b"\n")


def remove_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
