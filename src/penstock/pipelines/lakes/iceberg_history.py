"""Which files each commit of an Iceberg table added, and how much of its past a table keeps.

Every entry of a manifest carries the number of the commit that added its file, and keeps it when
manifests are merged and snapshots forgotten. So a reader that goes on after a long pause needs no
snapshots but the last.
"""

import contextlib
from typing import Any
from urllib.parse import urlparse

from penstock.pipelines.lakes.lake_table import LakeRefused

SNAPSHOTS_KEPT = "penstock.snapshots-kept"
# Snapshots are forgotten some at a time, because looking for them costs about as much as a commit.
_SLACK = 10


def version_of(table: Any) -> int:
    """Iceberg counts commits from 1; -1 for a table without any."""
    snapshot = table.current_snapshot()
    return -1 if snapshot is None else _number(snapshot.sequence_number, table)


def added_paths(table: Any, after: int, until: int | None, name: str) -> list[str]:
    """Of the commits in (after, until], in their order; refuses what was not only appended to."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    end = version_of(table) if until is None else until
    if after >= 0:
        _check_appended(table, after, end, name)
    found = []
    for manifest in snapshot.manifests(table.io):
        if _is_of_deletes(manifest):
            raise LakeRefused(
                f"The Iceberg table {name!r} holds rows that are marked as deleted, which can't be"
                " read here until its files are rewritten."
            )
        if manifest.sequence_number is not None and manifest.sequence_number - 1 <= after:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            version = _number(entry.sequence_number, table)
            if after < version <= end:
                if after >= 0 and entry.file_sequence_number != entry.sequence_number:
                    raise _rewritten(name)
                found.append((version, _local(entry.data_file.file_path, name)))
    return [path for _, path in sorted(found)]


def forget_old_snapshots(transaction: Any) -> list[Any]:
    """Part of a commit: the table's own setting says how many stay, and tables of others have none.

    Returns the snapshots that are gone once the transaction is committed. A commit costs time in
    proportion to the snapshots that a table has.
    """
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    metadata = transaction.table_metadata
    kept = metadata.properties.get(SNAPSHOTS_KEPT, "")
    # Other branches and tags are somebody's hold on the past.
    if not kept.isdecimal() or len(metadata.refs) > 1:
        return []
    snapshots = sorted(metadata.snapshots, key=lambda each: each.sequence_number)
    if len(snapshots) < int(kept) + _SLACK:
        return []
    # By their order and not by their times, which clocks of several writers do not agree about.
    forgotten = snapshots[: -int(kept)]
    with ExpireSnapshots(transaction) as expiring:
        expiring.by_ids([snapshot.snapshot_id for snapshot in forgotten])
    return forgotten


def remove_metadata_of(forgotten: list[Any], table: Any) -> None:
    """Remove the lists of files that nobody can ask for any more; failing to does no harm."""
    if not forgotten:
        return
    with contextlib.suppress(OSError):
        needed = {
            manifest.manifest_path
            for snapshot in _first_kept(table.snapshots())
            for manifest in snapshot.manifests(table.io)
        }
        listed = {
            manifest.manifest_path
            for snapshot in forgotten
            for manifest in snapshot.manifests(table.io)
        }
        for path in listed - needed:
            table.io.delete(path)
        for snapshot in forgotten:
            table.io.delete(snapshot.manifest_list)


def _first_kept(snapshots: list[Any]) -> list[Any]:
    """Those whose past is forgotten: what the others have of it, they have through these.

    There is one, unless somebody has taken the table back to an earlier snapshot.
    """
    kept = {snapshot.snapshot_id for snapshot in snapshots}
    return [snapshot for snapshot in snapshots if snapshot.parent_snapshot_id not in kept]


def _check_appended(table: Any, after: int, until: int, name: str) -> None:
    from pyiceberg.table.snapshots import Operation

    for snapshot in table.snapshots():
        version = _number(snapshot.sequence_number, table)
        if not after < version <= until or snapshot.summary is None:
            continue
        if snapshot.summary.operation is not Operation.APPEND:
            raise _rewritten(name)


def _rewritten(name: str) -> LakeRefused:
    return LakeRefused(
        f"The Iceberg table {name!r} was rewritten since it was last read, so its new rows can't"
        " be told from the old ones: read it from the start, with a new checkpoint."
    )


def _is_of_deletes(manifest: Any) -> bool:
    from pyiceberg.manifest import ManifestContent

    return bool(manifest.content != ManifestContent.DATA)


def _number(sequence_number: int | None, table: Any) -> int:
    if not sequence_number:
        raise LakeRefused(
            f"The Iceberg table {table.location()!r} is of format version 1, which does not number"
            " its commits: upgrade it to version 2."
        )
    return sequence_number - 1


def _local(path: str, name: str) -> str:
    if path.startswith("/"):
        return path
    address = urlparse(path)
    if address.scheme != "file":
        raise LakeRefused(
            f"The Iceberg table {name!r} has files that are not in a local folder, such as"
            f" {path!r}, which can't be read here."
        )
    return address.path
