"""A progress bar on stderr, when a person is watching it and nothing else is written there."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(label: str, total: int | None, *, shown: bool) -> Iterator[Advance]:
    """Yields a function that takes how much was done since the last call."""
    if not shown or not sys.stderr.isatty():
        yield _unseen
        return
    # Imported here because most runs are scripts, and they should not wait for it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = TextColumn("{task.completed}") if total is None else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    # Without a total the bar never fills, so it goes when the work is done.
    with Progress(*columns, console=Console(stderr=True), transient=total is None) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)


def _unseen(amount: int) -> None:
    """Nobody looks."""
