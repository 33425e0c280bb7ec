"""What a Python file has declared so far, while it is being loaded."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.model import (
    Case,
    FunctionStep,
    Options,
    OutputMode,
    Parameter,
    Restart,
    Sink,
    Source,
)
from penstock.pipelines.specification.problems import Place, SpecificationRefused

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is said about the pipeline as a whole."""

    name: str
    description: str
    storage: str | None
    settings: Options
    restart: Restart
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFlow:
    """A flow before its target is known: that may stand further down in the file."""

    name: str
    input: str
    target: str
    interval: str | None
    mode: OutputMode
    settings: Options
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What flows write to; the sink is None when it was declared wrongly."""

    name: str
    sink: Sink | None
    place: Place


@dataclass(slots=True, kw_only=True)
class Declarations:
    """Filled by the words that a file uses, from its first line to its last."""

    context: Context
    given: Mapping[str, str]
    environment: Mapping[str, str]
    header: Header | None = None
    parameters: list[Parameter] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Names of sources that have problems of their own."""
    steps: list[FunctionStep] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    flows: list[DeclaredFlow] = field(default_factory=list)
    dead_letters: list[tuple[Source, str, Place]] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    settings: dict[str, Options] = field(default_factory=dict)
    """Of Spark, by the step that they were declared for."""

    def problem(self, place: Place, sentence: str) -> None:
        self.context.problem(place, sentence)


# A variable of the context, and none of the module: threads may each load a file.
_loading: ContextVar[Declarations | None] = ContextVar("penstock_declarations", default=None)


@contextmanager
def collecting(declarations: Declarations) -> Iterator[None]:
    """While this lasts, the words declare into `declarations`."""
    token = _loading.set(declarations)
    try:
        yield
    finally:
        _loading.reset(token)


def declarations_for(word: str, place: Place) -> Declarations:
    """Where the word declares; it means something only in a file that is being loaded."""
    found = _loading.get()
    if found is None:
        raise SpecificationRefused.at(
            place,
            f"{word} describes a pipeline, and running the file with Python does not run it:"
            f" use penstock pipeline run {place.file}.",
        )
    return found
