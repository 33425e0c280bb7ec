"""Reads the steps of a pipeline: SQL, functions and deduplication, with the datasets they take."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import (
    Fields,
    corrected,
    entries_of,
    every_key,
    kind_of,
    listed,
)
from penstock.pipelines.specification.function_files import (
    RESERVED,
    read_reference,
    signature_of,
)
from penstock.pipelines.specification.model import (
    DeduplicateStep,
    FunctionReference,
    FunctionStep,
    SqlStep,
    Step,
)
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.specification.shaping import read_shape
from penstock.pipelines.specification.sql_references import SqlNotRead, table_references
from penstock.pipelines.specification.tree import Node, Scalar

# By a step, flow or test and a dataset that it names: where it does so.
InputPlaces = dict[tuple[str, str], Place]

_SHAPE = ("watermark", "rules")
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sql": ("sql", "inputs", *_SHAPE),
        "function": ("function", "inputs", *_SHAPE),
        "deduplicate": ("deduplicate", "by", "within_watermark", *_SHAPE),
    }
)


def read_step(
    name: str, place: Place, node: Node, context: Context, places: InputPlaces
) -> Step | None:
    """One step, or None after its problems were reported; notes in `places` where it names"
    " inputs."""
    before = len(context.problems)
    owner = f"the step {name}"
    entries = entries_of(node, context, owner=owner)
    entries = corrected(entries, context, owner=owner, known=every_key(KEYS))
    kind = kind_of(entries, KEYS, context, either=f"The step {name} is")
    if kind is None:
        if len(context.problems) == before:
            said = f"The step {name} does not say what it does: give {listed(tuple(KEYS))}."
            context.problem(place, said)
        return None
    fields = Fields(entries, context, owner=owner, known=KEYS[kind], place=place)
    step = _READERS[kind](name, place, fields, context, places)
    return step if len(context.problems) == before else None


def _given_inputs(name: str, fields: Fields, places: InputPlaces) -> tuple[str, ...]:
    found = fields.scalars("inputs")
    places.update({(name, one.text): one.place for one in found})
    return tuple(dict.fromkeys(one.text for one in found))


def _sql_step(
    name: str, place: Place, fields: Fields, context: Context, places: InputPlaces
) -> SqlStep | None:
    sql = fields.needed_as_written("sql")
    watermark, rules = read_shape(fields, context, owner=f"the step {name}")
    if sql is None or not sql.text.strip():
        return None
    written = fields.node("sql")
    assert isinstance(written, Scalar)
    inputs = _given_inputs(name, fields, places)
    if not fields.has("inputs") and not context.lacks_value(written):
        inputs = _inputs_of_sql(name, sql, context, places)
    return SqlStep(
        name=name,
        sql=sql.text,
        sql_place=sql.text_place,
        inputs=inputs,
        watermark=watermark,
        rules=rules,
        place=place,
    )


def _inputs_of_sql(
    name: str, sql: Scalar, context: Context, places: InputPlaces
) -> tuple[str, ...]:
    try:
        tables = table_references(sql.text)
    except ModuleNotFoundError:
        context.problem(
            sql.place, "Reading SQL needs Spark's extra: pip install 'penstock-mq[spark]'."
        )
        return ()
    except SqlNotRead as refusal:
        said = f"{str(refusal).removesuffix('.')} in the step {name}"
        hint = "if Spark accepts it, name the datasets that it reads, as in inputs: [readings]"
        context.problem(sql.place_at(refusal.position), f"{said}; {hint}.")
        return ()
    places.update({(name, table.name): sql.place_at(table.position) for table in tables})
    return tuple(table.name for table in tables)


def _function_step(
    name: str, place: Place, fields: Fields, context: Context, places: InputPlaces
) -> FunctionStep | None:
    found = fields.needed("function")
    watermark, rules = read_shape(fields, context, owner=f"the step {name}")
    reference = None if found is None else read_reference(found, context)
    if reference is None:
        return None
    inputs = _given_inputs(name, fields, places)
    if not fields.has("inputs"):
        inputs = _inputs_of_function(name, reference, context, places)
    return FunctionStep(
        name=name,
        function=reference,
        inputs=inputs,
        watermark=watermark,
        rules=rules,
        place=place,
    )


def _inputs_of_function(
    name: str, reference: FunctionReference, context: Context, places: InputPlaces
) -> tuple[str, ...]:
    assert reference.file is not None
    try:
        signature = signature_of(reference.file, reference.name, reference.place)
    except SpecificationRefused as refused:
        for problem in refused.problems:
            context.problem(problem.place, problem.sentence)
        return ()
    if not signature.inputs and not set(signature.parameters) & set(RESERVED):
        said = f"The function {reference.name} takes no dataset: its parameters must name some."
        context.problem(reference.place, said)
    places.update({(name, one): reference.place for one in signature.inputs})
    return signature.inputs


def _deduplicate_step(
    name: str, place: Place, fields: Fields, context: Context, places: InputPlaces
) -> DeduplicateStep:
    dataset = fields.needed_text("deduplicate")
    if dataset:
        places[name, dataset] = fields.text_place("deduplicate")
    by = fields.texts("by")
    if not by:
        said = f"The key by is missing in the step {name}: it lists the columns to compare."
        context.problem(fields.place, said)
    watermark, rules = read_shape(fields, context, owner=f"the step {name}")
    return DeduplicateStep(
        name=name,
        input=dataset,
        by=by,
        is_within_watermark=fields.flag("within_watermark", True),
        watermark=watermark,
        rules=rules,
        place=place,
    )


_Reader = Callable[[str, Place, Fields, Context, InputPlaces], Step | None]
_READERS: Mapping[str, _Reader] = MappingProxyType(
    {"sql": _sql_step, "function": _function_step, "deduplicate": _deduplicate_step}
)
