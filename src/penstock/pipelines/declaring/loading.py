"""Runs a Python file that describes a pipeline.

Its functions run on executors, which can't import the file. A function whose module can't be found
by name is pickled by value, so the module, and those of files beside it, are known to Python only
while the file is loaded.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import ModuleType

from penstock.pipelines.building.functions import problem_in_python
from penstock.pipelines.declaring.stand_ins import stand_ins
from penstock.pipelines.specification.problems import Place, SpecificationRefused

MODULE_PREFIX = "penstock_pipeline_"
# Where Python looks for modules, and which it knows, is the same for all threads. A file may read
# another pipeline while it is loaded.
_IMPORTING = RLock()


def run_file(path: Path) -> None:
    """Run it to its last line; raises SpecificationRefused at the line that fails."""
    place = Place(str(path))
    module = ModuleType(MODULE_PREFIX + path.stem.replace("-", "_"))
    module.__file__ = str(path)
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        with _IMPORTING, stand_ins(), _known(module), _neighbours(path.parent):
            exec(code, vars(module))
    except SpecificationRefused:
        raise
    except SystemExit as left:
        raise SpecificationRefused.at(
            place, f"The file ends the Python process ({left.code!r})."
        ) from None
    except OSError as error:
        if error.filename == str(path):
            said = (error.strerror or str(error)).lower()
            raise SpecificationRefused.at(place, f"The file can't be read: {said}.") from None
        raise SpecificationRefused([problem_in_python(error, path.parent, place)]) from error
    except Exception as error:
        raise SpecificationRefused([problem_in_python(error, path.parent, place)]) from error


@contextmanager
def _known(module: ModuleType) -> Iterator[None]:
    """Dataclasses and their like look for their module while a class is made."""
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.modules.pop(module.__name__, None)


@contextmanager
def _neighbours(folder: Path) -> Iterator[None]:
    """Lets the file import its neighbours, loaded again, as another pipeline may have its like."""
    before = set(sys.modules)
    entry = str(folder.absolute())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
        found = [name for name in list(sys.modules) if name not in before]
        beside = {name for name in found if "." not in name and _is_beside(name, folder)}
        for name in found:
            if name.partition(".")[0] in beside:
                del sys.modules[name]


def _is_beside(name: str, folder: Path) -> bool:
    """Whether a module is a file or a package in the folder itself, and no library below it."""
    module = sys.modules[name]
    file = getattr(module, "__file__", None)
    places = [file] if file else list(getattr(module, "__path__", []))
    near = folder.resolve()
    return any(
        Path(place).resolve() in (near / f"{name}.py", near / name / "__init__.py", near / name)
        for place in places
    )
