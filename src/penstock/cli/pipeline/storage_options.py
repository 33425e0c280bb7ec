"""Which pipeline is meant: the one that a file describes, or the one that a folder belongs to."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.pipeline.options import parameters_option

if TYPE_CHECKING:
    from penstock.pipelines.running.storage import Storage

Command = TypeVar("Command", bound=Callable[..., Any])


def storage_options(command: Command) -> Command:
    """FILE with -p, or --storage, as `path`, `parameters` and `folder`."""
    file = click.argument("path", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
    folder = click.option(
        "--storage",
        "folder",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        help="The pipeline's folder, instead of its file.",
    )
    return file(parameters_option(folder(command)))


def find_storage(
    path: Path | None, parameters: Mapping[str, str], folder: Path | None
) -> "Storage":
    """The folder of a pipeline that has run; raises CommandFailed where there is none."""
    from penstock.pipelines.running.storage import Storage
    from penstock.pipelines.specification.reading import read_pipeline

    if (path is None) == (folder is None):
        raise click.UsageError("Give either the pipeline's FILE or its --storage")
    if path is not None:
        folder = Path(read_pipeline(path, parameters).storage)
    assert folder is not None
    found = Storage(folder.absolute())
    if not found.exists():
        raise CommandFailed(f"No pipeline has run in {found.path} yet.")
    return found
