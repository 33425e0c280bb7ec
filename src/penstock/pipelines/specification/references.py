"""Checks how the parts of a pipeline name each other: names, duplicates, inputs, cycles."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.pipelines.specification.context import nearest_or_known
from penstock.pipelines.specification.model import (
    REJECTED,
    UNDECODABLE,
    Action,
    ArchiveSource,
    Case,
    Flow,
    FunctionStep,
    LakeSink,
    Source,
    SqlStep,
    Step,
    TopicSource,
)
from penstock.pipelines.specification.ordering import cycles_of, upstream_of
from penstock.pipelines.specification.problems import Place, Problem

_DATASET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLOW = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The parts of a pipeline before they are known to fit together."""

    sources: Sequence[Source]
    steps: Sequence[Step]
    flows: Sequence[Flow]
    cases: Sequence[Case] = ()
    broken: Collection[str] = ()
    """Datasets that are declared, but have problems of their own already."""

    @property
    def datasets(self) -> list[str]:
        """The names of all datasets, the ones beside others last."""
        return [*(one.name for one in (*self.sources, *self.steps)), *self.side_datasets]

    @property
    def side_datasets(self) -> dict[str, str]:
        """Datasets that come into being beside another one, with the other's name."""
        found = {}
        for dataset in (*self.sources, *self.steps):
            if isinstance(dataset, TopicSource | ArchiveSource) and dataset.decoding is not None:
                found[dataset.name + UNDECODABLE] = dataset.name
            if any(rule.action is Action.ROUTE for rule in dataset.rules):
                found[dataset.name + REJECTED] = dataset.name
        return found


def reference_problems(
    declared: Declared, places: Mapping[tuple[str, str], Place]
) -> list[Problem]:
    """Everything that does not fit; `places` says where a step or flow names an input."""
    return [
        *_name_problems(declared),
        *_input_problems(declared, places),
        *_cycle_problems(declared),
        *_still_flows(declared),
        *_sink_problems(declared),
        *_case_problems(declared, places),
    ]


def spelling_of(declared: Declared) -> dict[str, str]:
    """Datasets by their names in lower case, as SQL takes names in any case."""
    return {name.lower(): name for name in declared.datasets}


def _name_problems(declared: Declared) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    sides = {name.lower(): owner for name, owner in declared.side_datasets.items()}
    kinds = [("source", one) for one in declared.sources]
    for kind, dataset in [*kinds, *(("step", one) for one in declared.steps)]:
        name = dataset.name
        if not _DATASET.fullmatch(name):
            said = "must start with a letter and hold only letters, digits and underscores"
            yield Problem(dataset.place, f'The name of the {kind} "{name}" {said}.')
        if name.lower() in seen:
            said = f"The name {name} is given twice: there is already a {seen[name.lower()]}"
            yield Problem(dataset.place, f"{said} of that name.")
        elif name.lower() in sides:
            owner = sides[name.lower()]
            said = f"The name {name} belongs to the rows that {owner} sorts out"
            yield Problem(dataset.place, f"{said}; give the {kind} another one.")
        seen.setdefault(name.lower(), kind)
    flows: set[str] = set()
    for flow in declared.flows:
        if not _FLOW.fullmatch(flow.name):
            said = "must hold only letters, digits, underscores and hyphens"
            yield Problem(flow.place, f'The name of the flow "{flow.name}" {said}.')
        # Each has a folder, and some file systems take names in any case.
        if flow.name.lower() in flows:
            yield Problem(flow.place, f"There is already a flow {flow.name}.")
        flows.add(flow.name.lower())


def _input_problems(
    declared: Declared, places: Mapping[tuple[str, str], Place]
) -> Iterator[Problem]:
    exact, spelling = set(declared.datasets), spelling_of(declared)
    for step in declared.steps:
        for name in step.inputs:
            is_known = name in exact or (isinstance(step, SqlStep) and name.lower() in spelling)
            if not is_known and not _is_broken(name, declared):
                place = places.get((step.name, name), step.place)
                yield Problem(place, _unknown(name, f"the step {step.name} takes", declared))
    for flow in declared.flows:
        if flow.input not in exact and not _is_broken(flow.input, declared):
            place = places.get((flow.name, flow.input), flow.place)
            yield Problem(place, _unknown(flow.input, f"the flow {flow.name} takes", declared))

    whole = {one.name for one in (*declared.steps, *declared.flows, *declared.cases)}
    for (owner, name), place in places.items():
        if owner not in whole and name.lower() not in spelling and not _is_broken(name, declared):
            yield Problem(place, _unknown(name, f"{owner} takes", declared))


def _is_broken(name: str, declared: Declared) -> bool:
    """Whether a name, or the one it is beside, was declared with problems."""
    broken = {one.lower() for one in declared.broken}
    sides = {one + side for one in broken for side in (UNDECODABLE, REJECTED)}
    return name.lower() in broken | sides


def _unknown(name: str, who: str, declared: Declared) -> str:
    for side, lack in ((UNDECODABLE, "decodes nothing"), (REJECTED, "has no rule that routes")):
        owner = name.removesuffix(side)
        if owner != name and owner in {one.name for one in (*declared.sources, *declared.steps)}:
            return f"There is no dataset {name}, which {who}: {owner} {lack}."
    flow = next((flow for flow in declared.flows if flow.name == name), None)
    if flow is not None:
        return f"There is no dataset {name}, which {who}: it is a flow, which takes {flow.input}."
    known = [*declared.datasets, *declared.broken]
    name = " ".join(name.split())
    return f"There is no dataset {name}, which {who}{nearest_or_known(name, known)}."


def _cycle_problems(declared: Declared) -> Iterator[Problem]:
    by_name = {step.name: step for step in declared.steps}
    for cycle in cycles_of(step_needs(declared)):
        if len(cycle) == 2:
            said = f"The step {cycle[0]} depends on itself."
        else:
            said = f"The steps {', '.join(cycle[:-1])} and {cycle[-1]} depend on each other."
        yield Problem(by_name[cycle[0]].place, said)


def dataset_needs(declared: Declared) -> dict[str, list[str]]:
    """For each step the sources and steps that it takes, also by way of what is beside them."""
    spelling, sides = spelling_of(declared), declared.side_datasets
    needs = {}
    for step in declared.steps:
        names = [spelling.get(name.lower(), name) for name in step.inputs]
        needs[step.name] = [sides.get(name, name) for name in names]
    return needs


def step_needs(declared: Declared) -> dict[str, list[str]]:
    """For each step the steps that it takes."""
    steps = {step.name for step in declared.steps}
    found = dataset_needs(declared)
    return {step: [name for name in names if name in steps] for step, names in found.items()}


def _still_flows(declared: Declared) -> Iterator[Problem]:
    """A flow is a running query, so something that it reads must be a stream."""
    parts: list[Source | Step] = [*declared.sources, *declared.steps]
    known = {part.name for part in parts}
    # A function may read a stream of its own.
    moving = {part.name for part in parts if _is_moving(part)}
    needs, sides = dataset_needs(declared), declared.side_datasets
    for flow in declared.flows:
        start = sides.get(flow.input, flow.input)
        reached = upstream_of(start, needs)
        if known.issuperset(reached) and moving.isdisjoint(reached):
            said = (
                f"The flow {flow.name} does not read a stream: {_sources_text(reached, declared)}"
            )
            yield Problem(flow.place, f"{said} never changes while a pipeline runs.")


def _is_moving(dataset: Source | Step) -> bool:
    if isinstance(dataset, FunctionStep):
        return True
    return isinstance(dataset, TopicSource) or bool(getattr(dataset, "is_stream", False))


def _sources_text(reached: Collection[str], declared: Declared) -> str:
    names = [source.name for source in declared.sources if source.name in reached]
    return f"what it takes from {' and '.join(names)}" if names else "what it takes"


def _sink_problems(declared: Declared) -> Iterator[Problem]:
    formats: dict[str, tuple[str, str]] = {}
    for flow in declared.flows:
        if not isinstance(flow.sink, LakeSink):
            continue
        first, other = formats.setdefault(flow.sink.path, (flow.sink.format, flow.name))
        if first != flow.sink.format:
            said = f"The flow {flow.name} writes {flow.sink.format} where the flow {other} writes"
            yield Problem(flow.sink.place, f"{said} {first}.")


def _case_problems(
    declared: Declared, places: Mapping[tuple[str, str], Place]
) -> Iterator[Problem]:
    sources = [source.name for source in declared.sources]
    datasets = declared.datasets
    for case in declared.cases:
        for name in case.given:
            if name not in sources and not _is_broken(name, declared):
                said = f'There is no source {name}, which the test "{case.name}" gives'
                place = places.get((case.name, name), case.place)
                yield Problem(place, f"{said}{nearest_or_known(name, sources)}.")
        for name in case.expected:
            if name not in datasets and not _is_broken(name, declared):
                said = f'the test "{case.name}" expects'
                place = places.get((case.name, name), case.place)
                yield Problem(place, _unknown(name, said, declared))
