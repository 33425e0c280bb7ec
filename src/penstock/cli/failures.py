"""What a user sees when a command fails: one sentence on stderr, and never a traceback."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import click

from penstock.cli.interrupts import Interrupted
from penstock.client.errors import BrokerUnreachable
from penstock.config import SettingsError
from penstock.model.errors import Explained
from penstock.pipelines.specification.problems import SpecificationRefused

T = TypeVar("T")
FAILED = 1
USAGE = 2
INTERRUPTED = 130
# Set this variable to see the traceback of a fault in Penstock itself.
TRACEBACK_VARIABLE = "PENSTOCK_TRACEBACK"


class CommandFailed(Explained):
    """The command can't do what was asked; the text is one sentence."""


class OutputClosed(Exception):
    """The reader of our output, such as `head`, has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What came of one of several things: a result, or why there is none."""

    name: str
    result: T | None
    error: Explained | None = None


def attempt_each(names: Sequence[str], act: Callable[[str], T]) -> list[Outcome[T]]:
    """One after the other: what fails does not stop the rest, unless nobody answers any more."""
    outcomes: list[Outcome[T]] = []
    for name in names:
        try:
            outcomes.append(Outcome(name=name, result=act(name)))
        except BrokerUnreachable as error:
            outcomes.append(Outcome(name=name, result=None, error=error))
            break
        except Explained as error:
            outcomes.append(Outcome(name=name, result=None, error=error))
    return outcomes


def fail_together(outcomes: Iterable[Outcome[T]]) -> None:
    """Call it when what went well is reported; raises if anything did not."""
    sentences = [str(one.error) for one in outcomes if one.error is not None]
    if sentences:
        raise CommandFailed(" ".join(sentences))


def exit_code_of(error: BaseException) -> int:
    """Tell the user what happened and return the exit code that stands for it."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Interrupted):
        return error.exit_code
    if isinstance(error, OutputClosed | BrokenPipeError):
        # The reader has seen enough, which is not a failure.
        silence_output()
        return 0
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    if isinstance(error, click.UsageError):
        return _say(_usage_sentence(error), USAGE)
    if isinstance(error, SettingsError):
        return _say(str(error), USAGE)
    if isinstance(error, click.ClickException):
        return _say(error.format_message(), FAILED)
    if isinstance(error, SpecificationRefused):
        # One line per problem that begins with its place, as compilers do and editors expect.
        click.echo(str(error), err=True)
        return FAILED
    if isinstance(error, Explained):
        return _say(str(error), FAILED)
    return _say(_fault_sentence(error), FAILED)


def silence_output() -> None:
    """Point stdout to nowhere, so that the interpreter's last flush has nothing to complain of."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _say(sentence: str, code: int) -> int:
    click.echo(f"penstock: {sentence}", err=True)
    return code


def _usage_sentence(error: click.UsageError) -> str:
    sentence = error.format_message()
    if not sentence.endswith("..."):
        sentence = sentence.removesuffix(".")
    command = error.ctx.command_path if error.ctx is not None else "penstock"
    return f"{sentence} (see {command} --help)."


def _fault_sentence(error: BaseException) -> str:
    if os.environ.get(TRACEBACK_VARIABLE):
        raise error
    if isinstance(error, OSError):
        return f"{error.filename or 'The operation'}: {(error.strerror or str(error)).lower()}."
    return (
        f"This is a bug in Penstock: {type(error).__name__}: {error} "
        f"({TRACEBACK_VARIABLE}=1 shows where)."
    )
