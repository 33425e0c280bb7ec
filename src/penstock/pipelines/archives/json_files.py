"""Small JSON files that are there whole or not at all, whenever the process or the machine ends."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.lakes.durable_files import replace_file


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put the file there, or in place of the one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json_text(content))


def json_text(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        raise ArchiveRefused(f"The file {path} is damaged: it is not JSON.") from None
    if not isinstance(content, dict):
        raise ArchiveRefused(f"The file {path} is damaged: it does not hold a JSON object.")
    return content
