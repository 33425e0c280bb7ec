"""`penstock pipeline plan`: the graph of a pipeline, as text and as a picture."""

from pathlib import Path

import click

from penstock.cli.output import counted
from penstock.cli.pipeline.options import parameters_option, specification_argument


@click.command()
@specification_argument
@parameters_option
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw the plan as an SVG picture in this file.",
)
def plan(path: Path, parameters: dict[str, str], svg: Path | None) -> None:
    """Show how rows go from sources to sinks in the pipeline in FILE.

    It reads no data and runs nothing, so it needs neither Spark nor a broker.
    """
    from penstock.pipelines.drawing.svg import svg_of
    from penstock.pipelines.drawing.text import text_of
    from penstock.pipelines.specification.graph import graph_of
    from penstock.pipelines.specification.reading import read_pipeline

    pipeline = read_pipeline(path, parameters)
    graph = graph_of(pipeline)
    counts = [
        counted(len(parts), noun)
        for parts, noun in (
            (pipeline.sources, "source"),
            (pipeline.steps, "step"),
            (pipeline.flows, "flow"),
        )
    ]
    click.echo(f"{pipeline.name}: {', '.join(counts)}")
    if pipeline.description:
        click.echo(pipeline.description.rstrip())
    click.echo(f"\n{text_of(graph)}", nl=False)
    if svg is not None:
        svg.write_text(svg_of(graph), "utf-8")
        click.echo(f"\nThe picture is in {svg}.")
