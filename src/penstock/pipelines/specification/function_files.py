"""Python files that a specification names: a function and its parameters, without running it."""

import ast
from dataclasses import dataclass
from pathlib import Path

from penstock.pipelines.specification.context import Context, nearest_or_known
from penstock.pipelines.specification.fields import shown
from penstock.pipelines.specification.model import FunctionReference
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.specification.tree import Scalar

# What a function can ask for besides datasets.
RESERVED = ("spark", "parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSignature:
    """A function as its file declares it."""

    name: str
    parameters: tuple[str, ...]
    """All of them, in order."""
    needed: tuple[str, ...]
    """Those without a default."""
    place: Place

    @property
    def inputs(self) -> tuple[str, ...]:
        """The datasets that it takes."""
        return tuple(name for name in self.needed if name not in RESERVED)


def read_reference(scalar: Scalar, context: Context) -> FunctionReference | None:
    """`file.py:function`, with the file relative to the specification's folder."""
    file, colon, name = scalar.text.strip().rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        if not context.lacks_value(scalar):
            said = (
                f"A function is named like anomalies.py:find_anomalies, not like {shown(scalar)}."
            )
            context.problem(scalar.place, said)
        return None
    path = context.path(file)
    if not Path(path).is_file():
        context.problem(scalar.place, f"There is no file {file}.")
        return None
    return FunctionReference(name=name, file=path, place=scalar.place)


def signature_of(file: str, name: str, place: Place) -> FunctionSignature:
    """The function `name` of a file; raises SpecificationRefused when it can't be found.

    `place` is where the specification names it.
    """
    functions = _functions(file, place)
    if name not in functions:
        hint = nearest_or_known(name, functions)
        said = f"The file {Path(file).name} does not define a function {name}{hint}."
        raise SpecificationRefused.at(place, said)
    function = functions[name]
    at = Place(file, function.lineno, function.col_offset + 1)
    if isinstance(function, ast.AsyncFunctionDef):
        said = f"The function {name} is async, which a pipeline can't call."
        raise SpecificationRefused.at(at, said)
    return _signature(function, at)


def _functions(file: str, place: Place) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions at the top of a file; of two with the same name the later one counts."""
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        said = f"The file {Path(file).name} can't be read: {error}."
        raise SpecificationRefused.at(place, said) from None
    try:
        module = ast.parse(source, file)
    except SyntaxError as error:
        at = Place(file, error.lineno, error.offset)
        raise SpecificationRefused.at(at, f"This is not valid Python: {error.msg}.") from None
    except ValueError as error:
        # A null byte, before Python 3.11.4.
        raise SpecificationRefused.at(Place(file), f"This is not valid Python: {error}.") from None
    return {
        node.name: node
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _signature(function: ast.FunctionDef, place: Place) -> FunctionSignature:
    taken = function.args
    if taken.vararg is not None or taken.kwarg is not None:
        said = f"The function {function.name} must name its parameters, without * and **"
        raise SpecificationRefused.at(place, f"{said}: they are the datasets that it takes.")
    if taken.posonlyargs:
        said = f"The function {function.name} has parameters that can't be given by name"
        raise SpecificationRefused.at(place, f"{said}: leave out the / after them.")
    names = [one.arg for one in taken.args]
    needed = names[: len(names) - len(taken.defaults)]
    for one, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True):
        names.append(one.arg)
        needed += [one.arg] if default is None else []
    return FunctionSignature(
        name=function.name, parameters=tuple(names), needed=tuple(needed), place=place
    )
