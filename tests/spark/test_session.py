"""Proves that session() needs nothing but an interpreter, and says so when Java is missing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock.spark
from penstock.spark.java import JavaNotFound, find_java
from penstock.spark.sessions import CHECKPOINTS, RECOMMENDED, chosen, prepare, session
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig_server import JVM_FLAGS

PROGRAM_TIMEOUT_S = 400
# A program as a user writes it: it runs without JAVA_HOME, PYSPARK_PYTHON and a useful PATH.
PROGRAM = """
import json, sys
import penstock.spark

spark = penstock.spark.session("mine", master="local[1]", checkpoints=sys.argv[3])
topic = spark.read.format("penstock").option("kafka.bootstrap.servers", sys.argv[1])
read = topic.option("subscribe", sys.argv[2]).load().where("offset >= 2").select("value")
python = spark.range(1).mapInPandas(lambda frames: (
    frame.assign(id=[__import__("sys").executable]) for frame in frames), "id string")
print(json.dumps({
    "name": spark.sparkContext.appName,
    "values": [bytes(row.value).decode() for row in read.collect()],
    "plan": read._jdf.queryExecution().executedPlan().toString(),
    "python": python.collect()[0].id,
    "checkpoints": spark.conf.get("spark.sql.streaming.checkpointLocation"),
}))
"""

FakeJava = Callable[..., Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Homes of programs that answer as Java does."""

    def make(name: str, version: str, exit_code: int = 0) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        answer = f'openjdk version "{version}" 2025-04-15'
        program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {exit_code}\n")
        program.chmod(0o755)
        return tmp_path / name

    return make


def test_java_home_is_asked_first_and_path_next(fake_java: FakeJava) -> None:
    first, second = fake_java("first", "17.0.15"), fake_java("second", "21")
    path = {"PATH": f"{second}/bin"}
    assert find_java({"JAVA_HOME": str(first), **path}, places=()) == first
    assert find_java(path, places=()) == second


def test_what_is_too_old_or_does_not_run_is_passed_over(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    old, broken, good = (
        fake_java("old", "1.8.0_392"),
        fake_java("broken", "17", exit_code=1),
        fake_java("usual-place", "17.0.1"),
    )
    environment = {"JAVA_HOME": str(old), "PATH": f"{broken}/bin"}
    assert find_java(environment, places=(f"{tmp_path}/usual-*",)) == good


def test_one_sentence_says_what_to_install(fake_java: FakeJava, tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound) as nothing:
        find_java({"PATH": str(tmp_path)}, places=())
    assert str(nothing.value) == (
        "Spark needs Java 17 or newer, and none was found in JAVA_HOME, on PATH or in the usual "
        "places: install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
        "brew install openjdk@17) or set JAVA_HOME."
    )
    old = fake_java("old", "1.8.0_392")
    with pytest.raises(JavaNotFound, match=rf"and {old}/bin/java is version 8: install it"):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, places=())


def test_the_environment_names_java_and_python_unless_the_user_did(java_home: Path) -> None:
    environment = {"JAVA_HOME": str(java_home)}
    prepare(environment)
    assert environment == {"JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_PYTHON"] = "/opt/python"
    prepare(environment)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"


def test_the_callers_settings_win() -> None:
    pushdown = "spark.sql.python.filterPushdown.enabled"
    assert chosen(None, {}) == RECOMMENDED
    settings = chosen(Path("/data/checkpoints"), {pushdown: "false"})
    assert settings[CHECKPOINTS] == "/data/checkpoints"
    assert settings[pushdown] == "false"


def test_a_session_is_here_or_elsewhere() -> None:
    with pytest.raises(ValueError, match="either a master or a remote server"):
        session(master="local[1]", remote="sc://127.0.0.1")


def test_the_package_loads_what_is_used_and_nothing_else() -> None:
    heavy = ("numba", "numpy", "pandas", "pyarrow", "pyspark")
    program = f"import sys, penstock.spark; print([n for n in {heavy} if n in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=True,
    )
    assert said.stdout.strip() == "[]", said.stderr
    assert dir(penstock.spark) == sorted(penstock.spark.__all__)
    for name in penstock.spark.__all__:
        assert callable(getattr(penstock.spark, name)), name
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = penstock.spark.sesion


@pytest.mark.slow
def test_a_program_needs_no_preparation(
    broker: Broker, make_topic: MakeTopic, produce: Produce, java_home: Path, tmp_path: Path
) -> None:
    """Java and Python are found, the data source too, and the filter reaches it."""
    topic = make_topic()
    produce(topic, [b"zero", b"one", b"two", b"three"])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kept = ("HOME", "LANG", "TMPDIR", "USER")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_SUBMIT_OPTS"] = JVM_FLAGS
    checkpoints = tmp_path / "checkpoints"
    said = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, topic, str(checkpoints)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        env=environment,
        cwd=tmp_path,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout.splitlines()[-1])
    plan = found.pop("plan")
    assert found == {
        "name": "mine",
        "values": ["two", "three"],
        "python": sys.executable,
        "checkpoints": str(checkpoints),
    }
    # Nothing is left to do for Spark: a filter of its own would show as "Filter (".
    assert "Filter (" not in plan, plan
