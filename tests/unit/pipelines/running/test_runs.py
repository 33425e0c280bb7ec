"""What surrounds a run: the order of flows, Spark's settings, workers, signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipelines.running.extras import ExtraMissing, require_spark
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.sessions import (
    JAVA_OPTIONS,
    faster_home,
    is_local,
    prepare_local,
    prepare_python,
    settings_of,
)
from penstock.pipelines.running.stop_signals import stop_by_signal
from penstock.pipelines.running.waves import flows_before
from penstock.pipelines.running.workers import refuse
from penstock.spark.home import make_home
from tests.unit.pipelines.running.rig import flow, pipeline, to_console, to_topic, topic_source


def test_a_flow_waits_for_those_that_write_what_it_reads(tmp_path: Path) -> None:
    sources = [topic_source("readings", "readings"), topic_source("alerts", "alerts")]
    flows = [
        flow("find", "readings", to_topic("alerts")),
        flow("raw", "readings", to_console()),
        flow("show", "alerts", to_console()),
    ]
    assert flows_before(pipeline(tmp_path, sources, flows)) == {
        "find": frozenset(),
        "raw": frozenset(),
        "show": frozenset({"find"}),
    }


def test_flows_in_a_circle_go_by_their_order(tmp_path: Path) -> None:
    sources = [topic_source("a", "a"), topic_source("b", "b")]
    flows = [flow("ab", "a", to_topic("b")), flow("ba", "b", to_topic("a"))]
    before = flows_before(pipeline(tmp_path, sources, flows))
    assert before == {"ab": frozenset(), "ba": frozenset({"ab"})}


def test_the_users_settings_win_and_the_log_goes_to_a_file(tmp_path: Path) -> None:
    given = {JAVA_OPTIONS: "-Xss4m", "spark.sql.shuffle.partitions": "8"}
    settings = settings_of("local[2]", tmp_path, given)
    assert settings["spark.sql.shuffle.partitions"] == "8"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings[JAVA_OPTIONS].endswith("log4j2.properties -Xss4m")
    assert str(tmp_path / "spark.log") in (tmp_path / "log4j2.properties").read_text()
    assert "spark.sql.shuffle.partitions" not in settings_of("spark://host:7077", tmp_path, {})


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("k8s://https://host", False),
    ],
)
def test_a_local_spark_is_reached_from_this_machine_alone(master: str, expected: bool) -> None:
    environment: dict[str, str] = {}
    prepare_local(master, environment)
    assert is_local(master) == expected
    assert environment == ({"SPARK_LOCAL_IP": "127.0.0.1"} if expected else {})


def test_only_a_local_spark_that_is_ours_gets_the_home_that_starts_faster(tmp_path: Path) -> None:
    for master, given in (
        ("local[2]", {}),
        ("spark://host:7077", {}),
        ("local", {"SPARK_HOME": "/opt/spark"}),
    ):
        environment = dict(given)
        with faster_home(master, tmp_path, environment):
            inside = dict(environment)
        assert environment == given
        is_ours = master == "local[2]"
        assert inside == ({"SPARK_HOME": str(tmp_path / "spark-home")} if is_ours else given)


def test_the_home_is_pyspark_without_the_archive_of_its_sources(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    made_at = (home / "jars").lstat().st_ino
    assert make_home(home) == home
    assert (home / "jars").lstat().st_ino == made_at
    # Of a pyspark that is not there any more.
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "gone")
    assert (make_home(home) / "jars").exists()


def test_the_python_of_workers_is_a_setting() -> None:
    environment: dict[str, str] = {}
    prepare_python({}, environment)
    assert environment == {}
    prepare_python({"spark.pyspark.python": "/opt/python"}, environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}


def test_a_worker_without_the_package_or_with_another_is_named() -> None:
    refuse([("a", "/python", "1.0")], "1.0")
    with pytest.raises(
        RunRefused, match=r"^The worker b does not .*\[spark-worker\]==1.0'.*/python"
    ):
        refuse([("a", "/python", "1.0"), ("b", "/python", None)], "1.0")
    with pytest.raises(
        RunRefused, match=r"^The worker b has penstock 0\.9, but the driver has 1\.0"
    ):
        refuse([("b", "/python", "0.9")], "1.0")


def test_the_first_signal_closes_the_gate() -> None:
    gate = StopGate()
    before = signal.getsignal(signal.SIGTERM)
    with stop_by_signal(gate):
        assert not gate.is_requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert gate.is_requested
    assert signal.getsignal(signal.SIGTERM) is before


TWO_SIGNALS = """
import os, signal
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.stop_signals import stop_by_signal

with stop_by_signal(StopGate(), before_death=lambda: print("farewell", flush=True)):
    os.kill(os.getpid(), signal.SIGTERM)
    print("goes on", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("is not reached", flush=True)
"""


def test_the_second_signal_ends_the_process_after_a_last_word() -> None:
    outcome = subprocess.run([sys.executable, "-c", TWO_SIGNALS], capture_output=True, text=True)
    assert outcome.stdout.splitlines() == ["goes on", "farewell"]
    assert outcome.returncode == -signal.SIGINT


def test_without_spark_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark()
    monkeypatch.setattr("penstock.pipelines.running.extras.NEEDED", ("no_such_package",))
    with pytest.raises(
        ExtraMissing, match=r"^This needs Spark: pip install 'penstock-mq\[spark\]'\.$"
    ):
        require_spark()
