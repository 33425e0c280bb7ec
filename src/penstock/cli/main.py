"""The command `penstock`: runs a subcommand and turns what went wrong into a sentence."""

import os
import sys

import click

from penstock import __version__
from penstock.cli.failures import exit_code_of
from penstock.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "up": "penstock.cli.up",
        "topic": "penstock.cli.topic",
        "produce": "penstock.cli.produce",
        "consume": "penstock.cli.consume",
        "group": "penstock.cli.group",
        "work": "penstock.cli.work",
        "queue": "penstock.cli.queue",
        "lock": "penstock.cli.lock",
        "cluster": "penstock.cli.cluster",
        "config": "penstock.cli.config",
        "profile": "penstock.cli.profile",
        "log": "penstock.cli.log",
        "schema": "penstock.cli.schema",
        "sql": "penstock.cli.sql",
        "bench": "penstock.cli.bench",
        "doctor": "penstock.cli.doctor",
        "health": "penstock.cli.health",
        "pipeline": "penstock.cli.pipeline.group",
        "archive": "penstock.cli.archive",
        "replay": "penstock.cli.replay",
        "demo": "penstock.cli.demo.command",
        "completion": "penstock.cli.completion",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="penstock %(version)s")
def cli() -> None:
    """Penstock: a durable message broker that speaks Kafka.

    Start one with `penstock up`. Then use it with Kafka's clients or with the commands below.
    """


def main() -> int:
    """Run the command line; the result is the exit code of the process."""
    _open_standard_streams()
    try:
        outcome = cli.main(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        return exit_code_of(error)


def _open_standard_streams() -> None:
    """Who closed one, as `>&-` does, wants nothing from it, but its number must be taken.

    Otherwise the next file or socket gets it, and then what is printed goes there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It stays open as long as the process runs.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
