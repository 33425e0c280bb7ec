"""`penstock cluster export` and `import`: what a cluster is beside its records, as a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.backup import Restored

# A cluster with 100,000 partitions and groups takes about a tenth of it.
FILE_BYTES_MAX = 256 << 20


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@client_options
def export_metadata(file: Path, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Write topics, settings, and the offsets of groups and queues to FILE.

    Records are not part of it: archive the topics after this. FILE must not exist yet.
    """
    from penstock.client.admin import Admin
    from penstock.client.backup import encode, take

    with Admin(bootstrap, timeout_s=timeout_s) as admin:
        backup = take(admin)
    write_new(file, encode(backup))
    if as_json:
        counts = {"topics": len(backup.topics), "groups": len(backup.groups)}
        print_json({"file": str(file), **counts})
    else:
        topics, groups = counted(len(backup.topics), "topic"), counted(len(backup.groups), "group")
        click.echo(f"{topics} and {groups} written to {file}.")


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--topics", "wants_topics", is_flag=True, help="Only topics and settings of nodes.")
@click.option("--groups", "wants_groups", is_flag=True, help="Only groups and queues.")
@client_options
def import_metadata(
    file: Path,
    wants_topics: bool,
    wants_groups: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Create the topics of FILE, and move groups and queues to their offsets.

    Existing topics and their settings stay unchanged. To restore a cluster, import the topics,
    replay their archives, and then import the groups: an offset is set only if it refers to the
    same record as before. If something is left out, the command prints the reason, and the exit
    code is 1.
    """
    from penstock.client import backup
    from penstock.client.admin import Admin

    saved = backup.decode(_read(file))
    is_all = wants_topics == wants_groups
    outcomes: list[backup.Restored] = []
    with Admin(bootstrap, timeout_s=timeout_s) as admin:
        if wants_topics or is_all:
            outcomes += backup.restore_topics(admin, saved)
        if wants_groups or is_all:
            outcomes += backup.restore_groups(admin, saved)
    _report(outcomes, as_json)
    if problems := backup.problems_of(outcomes):
        raise CommandFailed(" ".join(problems))


def write_new(file: Path, content: bytes) -> None:
    """All of it, or no file; one that is there is never overwritten."""
    try:
        with file.open("xb") as sink:
            try:
                sink.write(content)
            except BaseException:
                file.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise CommandFailed(f"{file} exists already; choose another name.") from None
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise CommandFailed(f"{file} can't be written: {problem}.") from None


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise CommandFailed(f"{file} can't be read: {problem}.") from None
    if len(content) > FILE_BYTES_MAX:
        raise CommandFailed(f"{file} is larger than {FILE_BYTES_MAX:,} bytes.")
    return content


def _report(outcomes: "Sequence[Restored]", as_json: bool) -> None:
    rows = [(one.kind, one.name, one.done or "left out") for one in outcomes]
    if as_json:
        print_json(
            [
                {"kind": one.kind, "name": one.name, "done": one.done, "problem": one.problem}
                for one in outcomes
            ]
        )
    else:
        print_table(("kind", "name", "outcome"), rows)
