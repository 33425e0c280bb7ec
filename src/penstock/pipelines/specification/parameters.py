"""The parameters of a pipeline: which there are, and the value that each has in this run."""

import re
from collections.abc import Mapping

from penstock.pipelines.specification.context import Context, nearest_or_known
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.model import Parameter
from penstock.pipelines.specification.problems import Place, Problem
from penstock.pipelines.specification.tree import Node, Scalar

ENVIRONMENT_PREFIX = "PENSTOCK_"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
KEYS = ("default", "environment", "description")


def read_parameters(entries: tuple[tuple[Scalar, Node], ...], context: Context) -> list[Parameter]:
    """What a file declares; a default may use the parameters above it, so it is not filled in."""
    found = []
    for key, node in entries:
        check_name(key.text, key.place, context.problems)
        if isinstance(node, Scalar) and not node.is_null:
            found.append(Parameter(name=key.text, default=node.text, place=key.place))
            continue
        fields = Fields(node, context, owner=f"the parameter {key.text}", known=KEYS)
        found.append(
            Parameter(
                name=key.text,
                default=fields.text_or_none("default"),
                environment=fields.text_or_none("environment"),
                description=fields.text("description"),
                place=key.place,
            )
        )
    return found


def check_name(name: str, place: Place, problems: list[Problem]) -> None:
    if not _NAME.fullmatch(name):
        said = "must start with a letter and hold only letters, digits and underscores"
        problems.append(Problem(place, f'The name of the parameter "{name}" {said}.'))


def value_of(
    parameter: Parameter, given: Mapping[str, str], environment: Mapping[str, str]
) -> str | None:
    """From a flag, else from the environment, else the default; None when there is none."""
    if parameter.name in given:
        return given[parameter.name]
    # As with the settings of a node, an empty variable counts as not set.
    return environment.get(variable_of(parameter)) or parameter.default


def variable_of(parameter: Parameter) -> str:
    """The variable of the environment that can set a parameter."""
    return parameter.environment or ENVIRONMENT_PREFIX + parameter.name.upper()


def missing_value(parameter: Parameter) -> Problem:
    name, variable = parameter.name, variable_of(parameter)
    said = f"The parameter {name} has no value: give -p {name}=VALUE or set {variable}."
    return Problem(parameter.place, said)


def unknown_values(
    given: Mapping[str, str], parameters: Mapping[str, object], place: Place
) -> list[Problem]:
    """Values that were given for parameters that do not exist."""
    return [
        Problem(place, f"There is no parameter {name}{nearest_or_known(name, parameters)}.")
        for name in given
        if name not in parameters
    ]
