"""Reads a pipeline from a Python file: runs it, and puts together what it declared."""

from collections.abc import Mapping
from pathlib import Path

from penstock.pipelines.declaring.declarations import Declarations, Header, collecting
from penstock.pipelines.declaring.loading import run_file
from penstock.pipelines.specification.assembling import assemble, in_file_order
from penstock.pipelines.specification.context import Context, nearest_or_known
from penstock.pipelines.specification.flows import dead_letters_flow
from penstock.pipelines.specification.model import (
    ArchiveSource,
    Flow,
    Options,
    Pipeline,
    Restart,
    TopicSource,
)
from penstock.pipelines.specification.ordering import upstream_of
from penstock.pipelines.specification.parameters import unknown_values
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.specification.references import (
    Declared,
    dataset_needs,
    reference_problems,
)


def read_python(path: Path, given: Mapping[str, str], environment: Mapping[str, str]) -> Pipeline:
    """The pipeline that a file declares; raises SpecificationRefused with every problem."""
    file = str(path)
    context = Context(file=file, folder=path.parent, values=None)
    declarations = Declarations(context=context, given=given, environment=environment)
    try:
        with collecting(declarations):
            run_file(path)
    except SpecificationRefused as refused:
        # The file was not read to its end, so that what it lacks may only come later.
        problems = [*context.problems, *refused.problems]
        raise SpecificationRefused(in_file_order(problems, file)) from refused
    context.problems += unknown_values(given, declarations.values, Place(file))
    return _assembled(declarations, path)


def _assembled(declarations: Declarations, path: Path) -> Pipeline:
    file, context = str(path), declarations.context
    header = declarations.header or _named_after(path)
    flows = _flows(declarations)
    _refuse_nothing(declarations, Place(file))
    declared = Declared(
        sources=declarations.sources,
        steps=declarations.steps,
        flows=flows,
        cases=declarations.cases,
        broken=declarations.broken,
    )
    if context.problems:
        found = [*context.problems, *reference_problems(declared, {})]
        raise SpecificationRefused(in_file_order(found, file))
    return assemble(
        name=header.name,
        description=header.description,
        file=file,
        storage=None if header.storage is None else context.path(header.storage),
        parameters=declarations.values,
        sources=declarations.sources,
        steps=declarations.steps,
        flows=flows,
        cases=declarations.cases,
        settings=header.settings,
        restart=header.restart,
        place=header.place,
    )


def _named_after(path: Path) -> Header:
    name = path.stem.lower().replace(" ", "-")
    return Header(
        name=name,
        description="",
        storage=None,
        settings={},
        restart=Restart(),
        place=Place(str(path)),
    )


def _refuse_nothing(declarations: Declarations, place: Place) -> None:
    if not declarations.sources and not declarations.broken:
        declarations.problem(place, "The file declares no source: use create_source.")
    if not declarations.flows and not declarations.dead_letters:
        declarations.problem(place, "The file declares no flow: use table or append_flow.")


def _flows(declarations: Declarations) -> list[Flow]:
    """What was declared, now that all targets are known; problems are reported to the context."""
    letters = [
        dead_letters_flow(source, topic, place)
        for source, topic, place in declarations.dead_letters
        if isinstance(source, TopicSource | ArchiveSource)
    ]
    targets = {target.name: target for target in declarations.targets}
    inherited = _inherited_settings(declarations)
    flows = []
    for flow in declarations.flows:
        target = targets.get(flow.target)
        if target is None:
            hint = nearest_or_known(flow.target, targets)
            said = f"There is no sink {flow.target}, which the flow {flow.name} targets{hint}."
            declarations.problem(flow.place, said)
        elif target.sink is not None:
            flows.append(
                Flow(
                    name=flow.name,
                    input=flow.input,
                    sink=target.sink,
                    interval=flow.interval,
                    mode=flow.mode,
                    settings={**inherited[flow.input], **flow.settings},
                    place=flow.place,
                )
            )
    return [*letters, *flows]


def _inherited_settings(declarations: Declarations) -> dict[str, Options]:
    """Spark's settings by step: those of all views above it; the nearest view wins."""
    declared = Declared(sources=declarations.sources, steps=declarations.steps, flows=())
    needs = dataset_needs(declared)
    result: dict[str, Options] = {}
    for step in declarations.steps:
        settings: dict[str, str] = {}
        # The farthest first, so that nearer ones replace what it says.
        for name in reversed(list(upstream_of(step.name, needs))):
            settings.update(declarations.settings.get(name, {}))
        result[step.name] = settings
    return result
