"""`penstock pipeline init` writes what `plan` then shows, without Spark and without a broker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.failures import CommandFailed
from penstock.cli.main import cli
from penstock.pipelines.specification.problems import SpecificationRefused


def run(*words: str | Path) -> str:
    outcome = CliRunner().invoke(cli, ["pipeline", *map(str, words)], standalone_mode=False)
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output


@pytest.mark.parametrize(("example", "file"), [("starter", "pipeline.yaml"), ("iot", "iot.yaml")])
def test_what_init_writes_can_be_planned(tmp_path: Path, example: str, file: str) -> None:
    said = run("init", tmp_path / "new", "--example", example)
    assert f"Next: penstock pipeline validate {tmp_path / 'new' / file}" in said
    assert all(path.is_file() for path in (tmp_path / "new").iterdir())
    counts = run("plan", tmp_path / "new" / file).splitlines()[0]
    assert re.fullmatch(r"\w+: \d+ sources?, \d+ steps, \d+ flows", counts)


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("mine")
    with pytest.raises(CommandFailed, match=r"Nothing was written: .*steps.py already exists."):
        run("init", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["steps.py"]


def test_plan_shows_the_graph_and_draws_it(tmp_path: Path) -> None:
    run("init", tmp_path)
    picture = tmp_path / "graph.svg"
    lines = run("plan", tmp_path / "pipeline.yaml", "--svg", picture).splitlines()
    assert lines[0] == "orders: 1 source, 3 steps, 4 flows"
    assert "   │  └─> turnover_table  (delta lake/turnover; every 10 seconds)" in lines
    assert lines[-1] == f"The picture is in {picture}."
    assert picture.read_text().startswith("<svg ")


def test_plan_takes_parameters_and_tells_problems(tmp_path: Path) -> None:
    run("init", tmp_path)
    file = tmp_path / "pipeline.yaml"
    assert "(delta /x/turnover;" in run("plan", file, "-p", "lake=/x")
    with pytest.raises(SpecificationRefused, match="no parameter lak; the nearest is lake"):
        run("plan", file, "-p", "lak=/x")


# Hides what plain `pip install penstock-mq` does not bring from the finder that looks into folders,
# so that Python goes on as it does where nothing of it is installed.
WITHOUT_SPARK = """
import sys
from importlib.machinery import PathFinder

HIDDEN = {hidden}

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
from penstock.cli.main import cli
cli.main(["pipeline", *sys.argv[1:]])
"""
HIDDEN = (
    *("pyspark", "py4j", "pyarrow", "pandas", "numpy", "numba"),
    *("deltalake", "pyiceberg", "fastavro", "google"),
)
IN_PYTHON = """\
import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.functions import pandas_udf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import DoubleType, StructField, StructType

from penstock import pipelines as dp

SCHEMA = StructType([StructField("celsius", DoubleType())])
HOT = (sf.col("celsius") > 60) & ~sf.col("key").isNull() | (1 + sf.col("offset") < np.int64(3))


class Alarms(StatefulProcessor):
    def init(self, handle: pd.DataFrame | None) -> None: ...


@pandas_udf("double")
def kelvin(celsius: pd.Series) -> pd.Series:
    return celsius + 273.15


@pandas_udf(returnType=DoubleType())
def fahrenheit(celsius: "pd.Series") -> Column | None: ...


dp.create_source("readings", topic="readings")


@dp.table(format="delta", path="lake/hot")
def hot(readings: DataFrame) -> DataFrame:
    return readings.where(HOT).select(kelvin("celsius"))
"""


def run_without_spark(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    program = WITHOUT_SPARK.format(hidden=HIDDEN)
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_plan_needs_no_spark_for_yaml(tmp_path: Path) -> None:
    run("init", tmp_path)
    outcome = run_without_spark("plan", tmp_path / "pipeline.yaml")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("orders: 1 source, 3 steps, 4 flows\n")


def test_plan_needs_no_spark_for_python_though_the_file_imports_it(tmp_path: Path) -> None:
    file = tmp_path / "readings.py"
    file.write_text(IN_PYTHON)
    outcome = run_without_spark("plan", file)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("readings: 1 source, 1 step, 1 flow\n")
    assert "hot  (delta lake/hot" in outcome.stdout
    # What needs Spark says so in a sentence.
    refused = run_without_spark("validate", file)
    assert refused.returncode == 1
    assert "This needs Spark: pip install 'penstock-mq[spark]'." in refused.stderr


def test_a_library_that_is_missing_is_still_told_where_there_is_no_spark(tmp_path: Path) -> None:
    file = tmp_path / "readings.py"
    file.write_text("import nothing_of_this_name\n")
    outcome = run_without_spark("plan", file)
    assert outcome.returncode == 1
    assert "readings.py:1" in outcome.stderr
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'." in outcome.stderr


def test_plan_loads_neither_spark_nor_arrow(tmp_path: Path) -> None:
    run("init", tmp_path)
    file = str(tmp_path / "pipeline.yaml")
    program = (
        "import sys; from penstock.cli.main import cli;"
        f"cli.main(['pipeline', 'plan', {file!r}], standalone_mode=False);"
        "print(*[name for name in ('pyspark', 'pyarrow', 'rich') if name in sys.modules])"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert outcome.stdout.splitlines()[-1] == ""
