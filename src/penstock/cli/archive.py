"""`penstock archive`: keeps a topic as a table of files, and proves that nothing of it is missing.

`penstock archive TOPIC` archives; `penstock archive verify PATH` looks at an archive. A topic that
is called like a command of this group is archived by `penstock archive topic NAME`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import bootstrap_option, client_options, json_option, setting_pairs
from penstock.cli.output import counted, print_json
from penstock.cli.progress import progress
from penstock.cli.spark_options import outage_option, spark_options

if TYPE_CHECKING:
    from penstock.pipelines.archives.ledger import Entry
    from penstock.pipelines.archives.verifying import Verdict

DEFAULT = "topic"
FORMATS = ("parquet", "delta", "iceberg")
FOUND_SOMETHING = 1


class TopicGroup(CommandGroup):
    """A word that is not a command is a topic."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, DEFAULT)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        if args and args[0] not in self.commands and not is_help:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=TopicGroup)
def archive() -> None:
    """Keep a topic as a table of files: penstock archive TOPIC --to PATH.

    You can leave out the word topic: `penstock archive readings` is short for `penstock archive
    topic readings`.
    """


@archive.command(DEFAULT)
@click.argument("name", metavar="TOPIC")
@click.option(
    "--to",
    "path",
    required=True,
    metavar="PATH",
    help="The archive's folder. Spark's driver and all its executors must be able to reach it.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(FORMATS),
    help="The table format; by default that of the existing archive, or parquet.",
)
@click.option(
    "--by-date/--not-by-date",
    "is_by_date",
    default=None,
    help="Also partition the files by the date of their records.",
)
@click.option(
    "--once", "is_once", is_flag=True, help="Archive what the topic holds now, then exit."
)
@click.option(
    "--every",
    "interval",
    metavar="TIME",
    default="1 minute",
    show_default=True,
    help="How long to wait between epochs. Not used with --once.",
)
@click.option(
    "--offsets-max",
    type=click.IntRange(1),
    metavar="N",
    default=5_000_000,
    show_default=True,
    help="At most N offsets in each epoch.",
)
@click.option(
    "--allow-loss",
    "is_loss_allowed",
    is_flag=True,
    help="Continue when records were deleted before they were archived; verify lists them.",
)
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=setting_pairs,
    help="A table option, such as Iceberg's catalog; may be repeated.",
)
@outage_option
@spark_options
@bootstrap_option
@json_option
def archive_topic(
    name: str,
    path: str,
    table_format: str | None,
    is_by_date: bool | None,
    is_once: bool,
    interval: str,
    offsets_max: int,
    is_loss_allowed: bool,
    options: dict[str, str],
    outage_s_max: float,
    master: str | None,
    settings: dict[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Archive a topic, starting where the archive ends; runs until stopped, unless --once."""
    from penstock.pipelines.running.extras import require_spark

    require_spark()
    from penstock.cli.archive_run import ArchiveRun
    from penstock.pipelines.archives.archiving import Wanted
    from penstock.pipelines.lakes.opening import table_folder
    from penstock.pipelines.specification.model import LakeFormat

    wanted = Wanted(
        root=Path(table_folder(path)),
        bootstrap=bootstrap,
        format=None if table_format is None else LakeFormat(table_format),
        is_by_date=is_by_date,
        options=options,
        is_once=is_once,
        interval=interval,
        is_loss_allowed=is_loss_allowed,
        offsets_per_batch_max=offsets_max,
        outage_s_max=outage_s_max,
    )
    entries = ArchiveRun(wanted, name, master=master, settings=settings).run()
    _tell(name, path, entries, as_json=as_json)


def _tell(name: str, path: str, entries: "list[Entry]", *, as_json: bool) -> None:
    records = sum(entry.rows for entry in entries)
    lost = sum(span.stop - span.start for entry in entries for span in entry.lost)
    if as_json:
        print_json({"topic": name, "records": records, "epochs": len(entries), "lost": lost})
        return
    epochs = counted(len(entries), "epoch")
    click.echo(f"Archived {counted(records, 'record')} of topic {name} in {epochs} to {path}.")
    if lost:
        click.echo(
            f"WARNING: {counted(lost, 'offset')} of topic {name} had been deleted before they were"
            f" archived; penstock archive verify {path} lists them.",
            err=True,
        )


@archive.command()
@click.argument("path")
@click.option(
    "--online", "is_online", is_flag=True, help="Also compare with the topic as it is now."
)
@client_options
def verify(path: str, is_online: bool, bootstrap: str, timeout_s: float, as_json: bool) -> int:
    """Prove that an archive is complete; list what is missing or altered, with exit code 1."""
    from penstock.pipelines.running.extras import require_spark

    require_spark()
    from penstock.pipelines.archives.verifying import Verification
    from penstock.pipelines.lakes.opening import table_folder

    verification = Verification(Path(table_folder(path)))
    with progress("verify", verification.size, shown=not as_json) as advance:
        verdict = verification.run(advance)
    findings = list(verdict.findings)
    if is_online:
        findings += _compared(verdict, bootstrap, timeout_s)
    if as_json:
        print_json(_verdict_json(verdict, findings))
    else:
        _print_verdict(path, verdict, findings)
    return FOUND_SOMETHING if findings else 0


def _compared(verdict: "Verdict", bootstrap: str, timeout_s: float) -> list[str]:
    from penstock.client.admin import Admin
    from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
    from penstock.pipelines.archives.online import compare_with_topic
    from penstock.pipelines.archives.topic_facts import topic_facts

    admin = Admin(bootstrap, timeout_s=timeout_s)
    topic = topic_facts(admin, verdict.description.topic)
    places = [
        TopicPartition(TopicName(topic.name), PartitionIndex(number))
        for number in range(topic.partitions)
    ]
    first, end = admin.offsets.earliest(places), admin.offsets.latest(places)
    offsets = {int(place.partition): (first[place], end[place]) for place in places}
    return list(compare_with_topic(verdict, topic, offsets))


def _verdict_json(verdict: "Verdict", findings: list[str]) -> dict[str, Any]:
    return {
        "topic": verdict.description.topic,
        "partitions": verdict.description.partitions,
        "format": str(verdict.description.format),
        "epochs": verdict.epochs,
        "files": verdict.files,
        "records": verdict.rows,
        "bytes": verdict.size,
        "offsets": {str(span.partition): [span.start, span.stop] for span in verdict.spans},
        "findings": findings,
    }


def _print_verdict(path: str, verdict: "Verdict", findings: list[str]) -> None:
    for finding in findings:
        click.echo(finding)
    if findings:
        click.echo(f"{path}: {counted(len(findings), 'finding')}.", err=True)
        return
    holds = ", ".join(
        (
            counted(verdict.rows, "record"),
            counted(verdict.description.partitions, "partition"),
            counted(verdict.files, "file"),
            counted(verdict.epochs, "epoch"),
        )
    )
    click.echo(f"{path}: {holds} of topic {verdict.description.topic}: complete.")
