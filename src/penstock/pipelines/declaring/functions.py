"""Functions that are steps: their parameters are the datasets that they take."""

import inspect
from typing import Any

from penstock.pipelines.declaring.declarations import Declarations, Function
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.function_files import RESERVED
from penstock.pipelines.specification.model import FunctionReference, FunctionStep
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.specification.shaping import read_shape
from penstock.pipelines.specification.tree import tree_of

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def declare_step(
    declarations: Declarations,
    function: Function,
    name: str,
    place: Place,
    *,
    watermark: object = None,
    rules: object = None,
) -> None:
    """A dataset that the function makes from others."""
    owner = f"the step {name}"
    said = {"watermark": watermark_map(watermark), "rules": rules_map(rules)}
    fields = Fields(
        tree_of(said, place), declarations.context, owner=owner, known=("watermark", "rules")
    )
    found_watermark, found_rules = read_shape(fields, declarations.context, owner=owner)
    declarations.steps.append(
        FunctionStep(
            name=name,
            function=FunctionReference(name=function.__name__, function=function, place=place),
            inputs=inputs_of(declarations, function, name, place),
            watermark=found_watermark,
            rules=found_rules,
            place=place,
        )
    )


def inputs_of(
    declarations: Declarations, function: Function, name: str, place: Place
) -> tuple[str, ...]:
    """The parameters that have no default and are not for us to fill in."""
    if inspect.iscoroutinefunction(function):
        declarations.problem(place, f"The function {name} is async, which a pipeline can't call.")
    inputs = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _BY_NAME:
            declarations.problem(
                place,
                f"The function {name} must take {parameter.name} by its name, without *, ** and /:"
                " its parameters are the datasets that it takes.",
            )
        elif parameter.default is inspect.Parameter.empty and parameter.name not in RESERVED:
            inputs.append(parameter.name)
    return tuple(inputs)


def name_of(function: Any, name: str | None, place: Place) -> str:
    """The name that was given, else the function's own."""
    if not inspect.isfunction(function):
        said = f"This can only decorate a function, not {function!r}."
        raise SpecificationRefused.at(place, said)
    return function.__name__ if name is None else name


def watermark_map(watermark: object) -> object:
    """`("at", "10 seconds")` says the same as a mapping of column and delay."""
    if isinstance(watermark, tuple | list) and len(watermark) == 2:
        return {"column": watermark[0], "delay": watermark[1]}
    return watermark


def rules_map(rules: object) -> object:
    """`{"plausible": ("temperature < 80", "route")}` says the same as with a mapping."""
    if not isinstance(rules, dict):
        return rules
    return {name: _rule_map(rule) for name, rule in rules.items()}


def _rule_map(rule: object) -> object:
    if isinstance(rule, tuple | list) and len(rule) == 2:
        return {"condition": rule[0], "action": rule[1]}
    return rule
