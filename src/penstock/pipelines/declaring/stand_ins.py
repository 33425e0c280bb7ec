"""Stand-ins for PySpark, and what comes with it, where they are not installed.

A Python file that describes a pipeline imports PySpark for its functions, which are not called to
read the file. So it can be read, and its graph drawn, on a machine without Spark: what it takes
from the missing modules is there, and does nothing. What needs Spark itself is refused later, by
`require_spark`.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

# All of them come with `penstock-mq[spark]`.
PACKAGES = ("pyspark", "pandas", "pyarrow", "numpy")


@contextmanager
def stand_ins() -> Iterator[None]:
    """Modules of these packages that are missing can be imported, if PySpark is one of them.

    Where PySpark is installed nothing stands in: a missing library is then the user's to install.
    """
    if find_spec(PACKAGES[0]) is not None:
        yield
        return
    finder = _Finder()
    # The last one that is asked: whatever is installed is found before.
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.made:
            sys.modules.pop(name, None)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self) -> None:
        self.made: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.made.append(spec.name)
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it to run."""


class _AbsentModule(ModuleType):
    def __getattr__(self, name: str) -> "_Absent":
        return _absent(name)


class _Absent:
    """Whatever a file may take from a missing module: a function, a decorator, a class, a type."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        # A decorator leaves a function what it is, so that its parameters can still be read.
        is_decorated = len(given) == 1 and not named and isinstance(given[0], FunctionType)
        return given[0] if is_decorated else self

    def __getattr__(self, name: str) -> "_Absent":
        return _absent(name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """A class of the user's may be made from it."""
        return ()


def _absent(name: str) -> _Absent:
    """Python asks for names with underscores to learn what something is, not to use it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent()


def _itself(self: _Absent, *_: Any) -> _Absent:
    return self


# Python looks for operators in the class alone.
for _operator in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rand", "ror", "rxor"),
    *("lt", "le", "gt", "ge", "neg", "invert", "getitem"),
):
    setattr(_Absent, f"__{_operator}__", _itself)
