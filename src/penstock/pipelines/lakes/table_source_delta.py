"""The values of a Delta table's partition columns, which its log holds and its files do not."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.pipelines.lakes.delta_log import FOLDER, file_path
from penstock.pipelines.lakes.partition_folders import value_text

Values = Mapping[str, str | None]


def delta_partitions(root: str, after: int, until: int) -> dict[str, Values]:
    """By absolute path, as text: of all files at `until`, or of those that came after `after`."""
    found: dict[str, Values] = {}
    for path, values in _added(root, after, until) if after >= 0 else _present(root, until):
        # An address in the log is encoded, and `deltalake` hands some of them out decoded.
        found[file_path(root, path)] = values
        found.setdefault(f"{root}/{path}", values)
    return found


def _present(root: str, version: int) -> Iterator[tuple[str, Values]]:
    import deltalake
    import pyarrow as pa

    actions = pa.table(deltalake.DeltaTable(root, version=version).get_add_actions())
    for action in actions.select(["path", "partition"]).to_pylist():
        values = {name: value_text(value) for name, value in action["partition"].items()}
        yield action["path"], values


def _added(root: str, after: int, until: int) -> Iterator[tuple[str, Values]]:
    for version in range(after + 1, until + 1):
        for line in (Path(root) / FOLDER / f"{version:020d}.json").read_text().splitlines():
            add: dict[str, Any] | None = json.loads(line).get("add") if line else None
            if add is not None:
                # An empty text is Delta's other way to say null.
                yield add["path"], {name: v or None for name, v in add["partitionValues"].items()}
