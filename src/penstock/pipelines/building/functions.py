"""Loads Python functions from files beside a specification, so that they also work on executors.

Workers could not import the file as a module: its functions, and those of files beside it that
it imports, travel to them by value.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.pipelines.building.spark_problems import sentence_of, word_of
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.specification.model import FunctionReference
from penstock.pipelines.specification.problems import Place, Problem, SpecificationRefused

MODULE_PREFIX = "penstock_pipeline_"


def load_function(reference: FunctionReference) -> Callable[..., Any]:
    """The function that is meant; raises SpecificationRefused with the place that is wrong."""
    if reference.function is not None:
        return reference.function
    assert reference.file is not None, "a function is at hand or in a file"
    module = load_module(Path(reference.file), reference.place)
    found = getattr(module, reference.name, None)
    if not callable(found):
        said = f"The file {Path(reference.file).name} does not define a function {reference.name}."
        raise SpecificationRefused.at(reference.place, said)
    return found  # type: ignore[no-any-return]


def load_module(path: Path, place: Place) -> ModuleType:
    """The file as a module, run once for each of its contents; `place` is where it is named."""
    try:
        content = path.read_bytes()
    except OSError as error:
        said = f"The file {path} can't be read: {(error.strerror or str(error)).lower()}."
        raise SpecificationRefused.at(place, said) from error
    name = _module_name(path, content)
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None, "it ends in .py"
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        with _beside(path.parent):
            # The loader would take compiled code of an earlier content, if the file kept its size
            # and was changed within a second.
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise SpecificationRefused([problem_in_python(error, path.parent, place)]) from error
    _travel_by_value(module)
    return module


def problem_in_python(error: Exception, folder: Path, place: Place) -> Problem:
    """What a user's code raised, at the last of its lines that was under way."""
    if isinstance(error, SyntaxError):
        where = Place(error.filename or place.file, error.lineno, error.offset)
        return Problem(where, f"The Python code is wrong: {error.msg}.")
    where = _last_line(error, folder) or place
    if hasattr(error, "getCondition") or hasattr(error, "java_exception"):
        return Problem(place_of_word(where, word_of(error)), sentence_of(error))
    text = " ".join(str(error).split()).rstrip(".")
    return Problem(
        where, f"{type(error).__name__}: {text}." if text else f"{type(error).__name__}."
    )


def _last_line(error: BaseException, folder: Path) -> Place | None:
    """In a file below the folder of the specification; deeper frames belong to libraries."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_below(frame.filename, folder) and "site-packages" not in frame.filename:
            column = None if frame.colno is None else frame.colno + 1
            return Place(frame.filename, frame.lineno, column)
    return None


def _module_name(path: Path, content: bytes) -> str:
    digest = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()
    return f"{MODULE_PREFIX}{path.stem.replace('-', '_')}_{digest[:12]}"


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Lets a file import its neighbours while it is loaded, and has those travel by value too."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and _is_below(file, folder) and "site-packages" not in file:
            _travel_by_value(sys.modules[name])


def _travel_by_value(module: ModuleType) -> None:
    try:
        from pyspark import cloudpickle
    except ImportError:
        # Without Spark a pipeline can still be drawn, and nothing travels.
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_below(file: str, folder: Path) -> bool:
    return Path(file).resolve().is_relative_to(folder.resolve())
