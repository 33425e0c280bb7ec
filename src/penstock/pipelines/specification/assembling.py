"""Puts the parts of a pipeline together: checks that they fit and brings them into order.

Both forms of a specification, YAML and Python, end here.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from penstock.pipelines.specification.handing_over import flow_needs
from penstock.pipelines.specification.model import (
    Case,
    Flow,
    Options,
    Pipeline,
    Restart,
    Source,
    SqlStep,
    Step,
)
from penstock.pipelines.specification.ordering import ordered
from penstock.pipelines.specification.problems import Place, Problem, SpecificationRefused
from penstock.pipelines.specification.references import (
    Declared,
    reference_problems,
    spelling_of,
    step_needs,
)

STORAGE_DEFAULT = ".penstock/pipelines"

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_NO_PLACES: Mapping[tuple[str, str], Place] = MappingProxyType({})
_NO_SETTINGS: Options = MappingProxyType({})


def assemble(
    *,
    name: str,
    file: str,
    storage: str | None,
    parameters: Mapping[str, str],
    sources: Sequence[Source],
    steps: Sequence[Step],
    flows: Sequence[Flow],
    cases: Sequence[Case] = (),
    settings: Options = _NO_SETTINGS,
    restart: Restart | None = None,
    place: Place,
    description: str = "",
    input_places: Mapping[tuple[str, str], Place] = _NO_PLACES,
) -> Pipeline:
    """The whole pipeline; raises SpecificationRefused with everything that does not fit.

    `input_places` says where a step or flow, by its name, names one of its inputs.
    """
    declared = Declared(sources=sources, steps=steps, flows=flows, cases=cases)
    problems = [*name_problems(name, place), *reference_problems(declared, input_places)]
    if problems:
        raise SpecificationRefused(in_file_order(problems, file))
    absolute = Path(file).absolute()
    return Pipeline(
        name=name,
        description=description,
        file=str(absolute),
        storage=_storage(storage, name, absolute.parent),
        parameters=dict(parameters),
        sources={source.name: source for source in sources},
        steps=_ordered_steps(declared),
        flows=_ordered_flows(declared),
        cases=tuple(cases),
        settings=dict(settings),
        restart=restart or Restart(),
        place=place,
    )


def name_problems(name: str, place: Place) -> list[Problem]:
    """What is wrong with the name of a pipeline, which is also the name of a folder."""
    if _NAME.fullmatch(name):
        return []
    said = (
        "must start with a letter and hold only lower-case letters, digits, underscores and hyphens"
    )
    return [Problem(place, f'The name of a pipeline {said}, not "{name}".')]


def in_file_order(problems: Iterable[Problem], file: str) -> list[Problem]:
    """The specification's own problems first, from its first line to its last."""
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (
            problem.place.file != file,
            problem.place.line or 0,
            problem.place.column or 0,
        ),
    )


def _storage(storage: str | None, name: str, folder: Path) -> str:
    return os.path.normpath(folder / (storage or f"{STORAGE_DEFAULT}/{name}"))


def _ordered_steps(declared: Declared) -> dict[str, Step]:
    by_name = {step.name: step for step in declared.steps}
    spelling = spelling_of(declared)
    return {name: _spelt(by_name[name], spelling) for name in ordered(step_needs(declared))}


def _spelt(step: Step, spelling: Mapping[str, str]) -> Step:
    """With the names of inputs as they are declared."""
    if not isinstance(step, SqlStep):
        return step
    return replace(step, inputs=tuple(spelling[name.lower()] for name in step.inputs))


def _ordered_flows(declared: Declared) -> dict[str, Flow]:
    by_name = {flow.name: flow for flow in declared.flows}
    return {name: by_name[name] for name in ordered(flow_needs(declared))}
