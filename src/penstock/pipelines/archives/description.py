"""What an archive is of and how it is kept: the file `_archive/archive.json` in its folder."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.pipelines.archives.json_files import read_json, write_json
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.specification.model import LakeFormat, Options

FOLDER = "_archive"
FILE = "archive.json"
LAYOUT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Of one archive; only the number of partitions changes, when the topic gets more of them."""

    topic: str
    topic_id: str
    """A topic that was created again under the same name has another one."""
    partitions: int
    format: LakeFormat
    is_by_date: bool = False
    options: Options = field(default_factory=dict)
    """Of the table, such as Iceberg's catalog."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those of the topic without which its records might not be taken again."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("partition", "date") if self.is_by_date else ("partition",)

    def to_json(self) -> dict[str, Any]:
        return {"layout": LAYOUT, **dataclasses.asdict(self)}


def description_path(root: Path) -> Path:
    return root / FOLDER / FILE


def checkpoint_of(root: Path) -> Path:
    """Spark's own, of the query that archives."""
    return root / FOLDER / "checkpoint"


def read_description(root: Path) -> Description | None:
    """None where there is no archive."""
    path = description_path(root)
    if not path.exists():
        return None
    content = read_json(path)
    if content.pop("layout", None) != LAYOUT:
        raise ArchiveRefused(f"The archive {root} was made by another version of Penstock.")
    try:
        return Description(**{**content, "format": LakeFormat(content["format"])})
    except (KeyError, TypeError, ValueError):
        raise ArchiveRefused(
            f"The file {path} is damaged: it does not describe an archive."
        ) from None


def archive_at(root: Path) -> Description:
    """Refuses a folder that is not an archive."""
    found = read_description(root)
    if found is None:
        raise ArchiveRefused(f"There is no archive in {root}.")
    return found


def write_description(root: Path, description: Description) -> None:
    write_json(description_path(root), description.to_json())
