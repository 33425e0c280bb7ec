"""`penstock pipeline`: Spark pipelines that are described in a file."""

import click

from penstock.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "init": "penstock.cli.pipeline.init",
        "validate": "penstock.cli.pipeline.validate",
        "plan": "penstock.cli.pipeline.plan",
        "test": "penstock.cli.pipeline.test",
        "run": "penstock.cli.pipeline.run",
        "status": "penstock.cli.pipeline.status",
        "stop": "penstock.cli.pipeline.stop",
        "reset": "penstock.cli.pipeline.reset",
    },
)
def pipeline() -> None:
    """Describe a Spark pipeline in a file, check it, run it, watch it."""
