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
    with pytest.raises(CommandFailed, match=r"Nothing was written: .*steps.py is there already."):
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
