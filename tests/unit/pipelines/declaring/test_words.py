"""The words are Spark's, are there without Spark, and their functions travel to executors."""

import inspect
import subprocess
import sys
from pathlib import Path

import pyspark.pipelines
import pytest
from pyspark import cloudpickle

from penstock import pipelines
from tests.unit.pipelines.declaring.files import declared

# Spark has them and Penstock refuses them, whatever they are given.
REFUSED = {"materialized_view", "create_auto_cdc_flow"}


def test_every_word_of_sparks_pipelines_is_here_with_its_parameters() -> None:
    for word in pyspark.pipelines.__all__:
        ours = inspect.signature(getattr(pipelines, word)).parameters
        theirs = inspect.signature(getattr(pyspark.pipelines, word)).parameters
        if word not in REFUSED:
            assert set(theirs) <= set(ours), word
            kinds = {name: ours[name].kind for name in theirs}
            assert kinds == {name: one.kind for name, one in theirs.items()}, word


def test_all_names_can_be_imported_and_others_can_not() -> None:
    assert sorted(pipelines.__all__) == sorted(pipelines.HOMES) == sorted(dir(pipelines))
    for name in pipelines.__all__:
        assert getattr(pipelines, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'tabel'"):
        _ = pipelines.tabel  # type: ignore[attr-defined]


def test_a_file_is_read_without_spark_being_imported(tmp_path: Path) -> None:
    path = tmp_path / "iot.py"
    path.write_text(
        "from penstock import pipelines as dp\n"
        "dp.create_source('readings', topic='x', decode={'format': 'json', 'schema': 'a INT'})\n"
        "@dp.table\n"
        "def kept(readings): return readings\n"
    )
    code = (
        "import sys, pathlib\n"
        "from penstock import pipelines\n"
        f"pipelines.read_pipeline(pathlib.Path({str(path)!r}))\n"
        "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_functions_and_those_of_files_beside_are_pickled_by_value(tmp_path: Path) -> None:
    (tmp_path / "heat.py").write_text(
        "from dataclasses import dataclass\n"
        "LIMIT = 50\n"
        "@dataclass\n"
        "class Alert:\n"
        "    level: int\n"
        "def is_hot(value): return Alert(value > LIMIT)\n"
    )
    pipeline = declared(
        tmp_path,
        """\
        import heat
        from heat import is_hot
        OFFSET = 1
        def moved(value): return value + OFFSET
        dp.create_source("readings", topic="x")
        @dp.table
        def kept(readings):
            return [is_hot(moved(readings)).level, heat.is_hot(moved(0)).level]
        """,
    )
    step = pipeline.steps["kept"]
    pickled = cloudpickle.dumps(step.function.function)  # type: ignore[union-attr]
    (tmp_path / "pickled").write_bytes(pickled)
    (tmp_path / "heat.py").unlink()
    (tmp_path / "iot.py").unlink()
    code = (
        "import pickle, sys\n"
        f"function = pickle.load(open({str(tmp_path / 'pickled')!r}, 'rb'))\n"
        "sys.exit(function(50) != [True, False])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
