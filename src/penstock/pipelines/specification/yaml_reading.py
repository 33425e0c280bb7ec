"""Reads a whole pipeline from a YAML file and tells everything that is wrong with it at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from penstock.pipelines.specification.assembling import assemble, in_file_order, name_problems
from penstock.pipelines.specification.cases import read_case
from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.flows import dead_letters_flow, read_flow
from penstock.pipelines.specification.model import (
    ArchiveSource,
    Case,
    Flow,
    Pipeline,
    Source,
    Step,
    TopicSource,
)
from penstock.pipelines.specification.parameters import (
    missing_value,
    read_parameters,
    unknown_values,
    value_of,
)
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.specification.references import Declared, reference_problems
from penstock.pipelines.specification.shaping import read_restart
from penstock.pipelines.specification.sources import dead_letters_topic, read_source
from penstock.pipelines.specification.steps import InputPlaces, read_step
from penstock.pipelines.specification.tree import Node, Scalar
from penstock.pipelines.specification.yaml_tree import read_tree

KEYS = (
    "pipeline",
    "description",
    "storage",
    "parameters",
    "settings",
    "restart",
    "sources",
    "steps",
    "flows",
    "tests",
)
_FILE_BYTES_MAX = 16 * 1024 * 1024

Part = TypeVar("Part")


@dataclass(slots=True)
class _Parts:
    """What could be read; a part with a problem is missing, but its name is declared."""

    sources: list[Source] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    places: InputPlaces = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


def read_yaml(path: Path, given: Mapping[str, str], environment: Mapping[str, str]) -> Pipeline:
    """The pipeline that a file describes; raises SpecificationRefused with every problem."""
    file = str(path)
    tree, problems = read_tree(_text(path), file)
    if tree is None:
        raise SpecificationRefused.at(Place(file), "The file is empty.")
    context = Context(file=file, folder=path.parent, values=None, problems=problems)
    fields = Fields(tree, context, owner="the pipeline", known=KEYS)
    values = _parameter_values(fields, context, given, environment)
    context.values = values
    name = fields.needed_text("pipeline")
    storage = fields.text_or_none("storage")
    settings = fields.pairs("settings")
    restart = read_restart(fields, context)
    description = fields.text("description")
    parts = _read_parts(fields, context)
    declared = Declared(
        sources=parts.sources,
        steps=parts.steps,
        flows=parts.flows,
        cases=parts.cases,
        broken=parts.broken,
    )
    place = fields.text_place("pipeline")
    found = reference_problems(declared, parts.places)
    found += name_problems(name, place) if name else []
    if context.problems:
        raise SpecificationRefused(in_file_order([*context.problems, *found], file))
    return assemble(
        name=name,
        description=description,
        file=file,
        storage=None if storage is None else context.path(storage),
        parameters={key: value for key, value in values.items() if value is not None},
        sources=parts.sources,
        steps=parts.steps,
        flows=parts.flows,
        cases=parts.cases,
        settings=settings,
        restart=restart,
        place=place,
        input_places=parts.places,
    )


def _text(path: Path) -> str:
    file = Place(str(path))
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise SpecificationRefused.at(file, "The file is too large for a specification.")
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise SpecificationRefused.at(file, "The file is not text in UTF-8.") from None
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise SpecificationRefused.at(file, f"The file can't be read: {said}.") from None


def _parameter_values(
    fields: Fields, context: Context, given: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str | None]:
    entries = fields.entries("parameters")
    values: dict[str, str | None] = {}
    for parameter in read_parameters(entries, context):
        value = value_of(parameter, given, environment)
        if value is None:
            context.problems.append(missing_value(parameter))
        elif value == parameter.default:
            value = _filled_default(value, parameter.place, values, context)
        values[parameter.name] = value
    context.problems += unknown_values(given, values, Place(context.file))
    return values


def _filled_default(
    text: str, place: Place, values: Mapping[str, str | None], context: Context
) -> str | None:
    """A default may use the parameters above it; None if one of them has no value."""
    above = Context(
        file=context.file, folder=context.folder, values=values, problems=context.problems
    )
    written = Scalar(text=text, place=place, text_place=place)
    filled = above.filled(written)
    return None if above.lacks_value(written) else filled.text


def _read_parts(fields: Fields, context: Context) -> _Parts:
    parts = _Parts()
    for key, node in fields.entries("sources"):
        source = read_source(key.text, key.place, node, context)
        dead_letters = _dead_letters(key, node, source, context)
        _add(parts.sources, source, key.text, parts)
        parts.flows += dead_letters
    for key, node in fields.entries("steps"):
        step = read_step(key.text, key.place, node, context, parts.places)
        _add(parts.steps, step, key.text, parts)
    for key, node in fields.entries("flows"):
        flow = read_flow(key.text, key.place, node, context, parts.places)
        _add(parts.flows, flow, None, parts)
    for number, node in enumerate(fields.items("tests"), 1):
        parts.cases.append(read_case(number, node, context, parts.places))
    for key_name, what in (("sources", "reads nothing"), ("flows", "writes nothing")):
        if not fields.has(key_name) and not (key_name == "flows" and parts.flows):
            said = f"The key {key_name} is missing in the pipeline, which {what} without it."
            context.problem(fields.place, said)
    return parts


def _add(parts: list[Part], part: Part | None, dataset: str | None, into: _Parts) -> None:
    if part is not None:
        parts.append(part)
    elif dataset is not None:
        into.broken.add(dataset)


def _dead_letters(key: Scalar, node: Node, source: Source | None, context: Context) -> list[Flow]:
    topic = dead_letters_topic(node, context)
    if topic is None or not isinstance(source, TopicSource | ArchiveSource):
        return []
    return [dead_letters_flow(source, topic.text, topic.place)]
