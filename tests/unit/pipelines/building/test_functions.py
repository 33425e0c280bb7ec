"""Proves that functions are loaded from files, travel by value, and fail at the user's line."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipelines.building.functions import load_function, load_module
from penstock.pipelines.specification.model import FunctionReference
from penstock.pipelines.specification.problems import Place, SpecificationRefused

PLACE = Place("iot.yaml", 7, 3)


def reference(path: Path, name: str = "double") -> FunctionReference:
    return FunctionReference(name=name, file=str(path), place=PLACE)


def refused(path: Path, name: str = "double") -> str:
    with pytest.raises(SpecificationRefused) as refusal:
        load_function(reference(path, name))
    return str(refusal.value)


def test_a_function_and_its_neighbours_run_where_their_files_are_not(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    (tmp_path / "neighbour_of_steps.py").write_text("def two():\n    return 2\n")
    path = tmp_path / "steps.py"
    path.write_text(
        "import neighbour_of_steps\n\ndef double(x):\n    return x * neighbour_of_steps.two()\n"
    )
    function = load_function(reference(path))
    assert function(4) == 8
    assert str(tmp_path) not in sys.path
    pickled = tmp_path / "function.pickle"
    pickled.write_bytes(cloudpickle.dumps(function))
    elsewhere = f"import pickle; print(pickle.load(open({str(pickled)!r}, 'rb'))(21))"
    done = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, cwd="/")
    assert done.stdout == b"42\n", done.stderr
    assert pickle.loads(pickled.read_bytes())(1) == 2


def test_a_file_runs_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text("def double(x):\n    return 2 * x\n")
    first = load_module(path, PLACE)
    assert load_module(path, PLACE) is first
    # As large as before, and as old to anyone who looks at seconds.
    path.write_text("def double(x):\n    return 3 * x\n")
    assert load_module(path, PLACE).double(1) == 3


def test_a_function_at_hand_is_taken_as_it_is() -> None:
    at_hand = FunctionReference(name="double", function=len, place=PLACE)
    assert load_function(at_hand) is len


def test_what_is_wrong_with_a_file_is_told_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text("def double(x):\n    return 2 *\n")
    assert refused(path).startswith(f"{path}:2:")
    path.write_text("import json\n\njson.loads('{')\n")
    assert refused(path).startswith(f"{path}:3:1: JSONDecodeError: ")
    path.write_text("def doubel(x):\n    return 2 * x\n")
    assert refused(path) == "iot.yaml:7:3: The file steps.py does not define a function double."
    assert refused(tmp_path / "none.py").endswith(
        "none.py can't be read: no such file or directory."
    )
