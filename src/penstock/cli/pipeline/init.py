"""`penstock pipeline init`: a commented pipeline to start from."""

import shutil
from pathlib import Path

import click

from penstock.cli.failures import CommandFailed

EXAMPLES = ("starter", "iot")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--example",
    type=click.Choice(EXAMPLES),
    default=EXAMPLES[0],
    show_default=True,
    help="The sample: shop orders, or sensors with averages and alerts.",
)
def init(directory: Path, example: str) -> None:
    """Write a sample pipeline into DIRECTORY, by default the current one.

    Existing files are never overwritten.
    """
    files = _template(example)
    there = [file.name for file in files if (directory / file.name).exists()]
    if there:
        raise CommandFailed(f"Nothing was written: {directory / there[0]} already exists.")
    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, directory / file.name)
        click.echo(f"Wrote {directory / file.name}")
    pipelines = [directory / file.name for file in files if file.suffix == ".yaml"]
    click.echo(f"\nNext: penstock pipeline validate {pipelines[0]}")


def _template(example: str) -> list[Path]:
    """The files of a template; folders in it are what a run left behind."""
    import penstock.pipelines

    folder = Path(penstock.pipelines.__file__).parent / "templates" / example
    files = [path for path in folder.iterdir() if path.is_file() and path.name[0] not in "._"]
    return sorted(files, key=lambda path: (path.suffix != ".yaml", path.name))
