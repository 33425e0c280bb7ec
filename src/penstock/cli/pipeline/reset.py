"""`penstock pipeline reset`: lets flows start again, as if they had never run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.pipeline.options import parameters_option, specification_argument

if TYPE_CHECKING:
    from penstock.pipelines.specification.model import Pipeline


@click.command()
@specification_argument
@parameters_option
@click.option(
    "--flow", "flows", metavar="NAME", multiple=True, help="Only this flow; may be repeated."
)
@click.option("--tables", is_flag=True, help="Also delete the tables that the flows have written.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(
    path: Path, parameters: dict[str, str], flows: tuple[str, ...], tables: bool, yes: bool
) -> None:
    """Reset the flows of FILE: forget what they have read, and their state.

    The next run reads the sources from the start again. Rows that were already written stay, so
    they will be there twice, unless you remove them with --tables.
    """
    from penstock.pipelines.running.resetting import chosen_flows, reset_pipeline
    from penstock.pipelines.specification.reading import read_pipeline

    pipeline = read_pipeline(path, parameters)
    chosen = chosen_flows(pipeline, flows)
    if not yes:
        _ask(pipeline, chosen, tables)
    reset_pipeline(pipeline, chosen, with_tables=tables)
    click.echo(f"The next run of {pipeline.name} starts from the beginning: {', '.join(chosen)}.")


def _ask(pipeline: "Pipeline", chosen: list[str], tables: bool) -> None:
    from penstock.pipelines.running.resetting import tables_of

    click.echo(f"These flows of {pipeline.name} will read their sources from the start again:")
    for name in chosen:
        click.echo(f"  {name}")
    paths = tables_of(pipeline, chosen)
    if tables and paths:
        click.echo("These tables will be deleted with all their rows:")
    elif paths:
        click.echo("These tables keep their rows, which will be written again (see --tables):")
    for table in paths:
        click.echo(f"  {table}")
    click.confirm("Continue?", abort=True)
