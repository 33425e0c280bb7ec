"""The command `penstock`: runs a subcommand and turns what went wrong into a sentence."""

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
        "cluster": "penstock.cli.cluster",
        "config": "penstock.cli.config",
        "log": "penstock.cli.log",
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

    Start one with `penstock up`; every Kafka client, and the commands below, can then use it.
    """


def main() -> int:
    """Run the command line; the result is the exit code of the process."""
    try:
        outcome = cli.main(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        return exit_code_of(error)


if __name__ == "__main__":
    sys.exit(main())
