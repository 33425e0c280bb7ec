"""`penstock replay`: brings an archive, or a range of it, back into a topic."""

from pathlib import Path

import click

from penstock.cli.options import bootstrap_option, json_option
from penstock.cli.output import counted, print_json
from penstock.cli.replay_bounds import TIME_HELP, Moment, OffsetBound, OffsetBoundType, TimeType
from penstock.cli.spark_options import outage_option, spark_options

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("path")
@click.option("--to", "topic", required=True, metavar="TOPIC", help="Created if it does not exist.")
@click.option("--from-time", type=TimeType(), help=f"Records from this time on: {TIME_HELP}.")
@click.option("--until-time", type=TimeType(), help="Records before this time.")
@click.option(
    "--from-offset",
    type=OffsetBoundType(),
    multiple=True,
    help="Records from this offset on, of all partitions or of one; may be repeated.",
)
@click.option(
    "--until-offset",
    type=OffsetBoundType(),
    multiple=True,
    help="Records before this offset, of all partitions or of one; may be repeated.",
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--again",
    "is_again",
    is_flag=True,
    help="Replay even if this archive was replayed to this topic before.",
)
@outage_option
@spark_options
@bootstrap_option
@json_option
def replay(
    path: str,
    topic: str,
    from_time: Moment | None,
    until_time: Moment | None,
    from_offset: tuple[OffsetBound, ...],
    until_offset: tuple[OffsetBound, ...],
    compression: str,
    is_again: bool,
    outage_s_max: float,
    master: str | None,
    settings: dict[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write an archive back into a topic, keeping keys, headers, timestamps and order.

    If a replay was killed, start it again: it continues where it was.
    """
    from penstock.pipelines.running.extras import require_spark

    require_spark()
    from penstock.cli.replay_run import run_replay
    from penstock.pipelines.archives.replaying import ReplayWanted
    from penstock.pipelines.archives.selection import Selection
    from penstock.pipelines.lakes.opening import table_folder

    wanted = ReplayWanted(
        root=Path(table_folder(path)),
        bootstrap=bootstrap,
        selection=Selection(
            from_offset=dict(from_offset),
            until_offset=dict(until_offset),
            from_ms=None if from_time is None else from_time.ms,
            until_ms=None if until_time is None else until_time.ms,
            words=_words(from_ms=from_time, until_ms=until_time),
        ),
        compression=compression,
        outage_s_max=outage_s_max,
        is_again=is_again,
    )
    records = run_replay(wanted, topic, master=master, settings=settings)
    if as_json:
        print_json({"topic": topic, "records": records})
        return
    click.echo(f"Replayed {counted(records, 'record')} from {path} into topic {topic}.")


def _words(**times: Moment | None) -> dict[str, str]:
    return {name: at.words for name, at in times.items() if at is not None and at.words is not None}
