"""`penstock demo` without Spark runs to its summary and checks itself.

With Spark it is run in tests/spark/pipelines/test_demo.py.
"""

import json
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e import processes
from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell

NODES = 3


def test_the_demo_ends_by_itself_with_a_summary() -> None:
    outcome = processes.run(
        "demo", "--no-spark", environment={"DEMO_SECONDS": "4"}, timeout_s=COMMAND_TIMEOUT_S
    )
    assert outcome.returncode == 0, outcome
    assert "nodes: 1 starting, 2 starting, 3 starting" in outcome.stdout
    assert re.search(r"node \d killed at \d+ s: writes paused \d", outcome.stdout)
    assert "by controller-1" in outcome.stdout
    assert "Checked: every reading arrived once" in outcome.stdout
    assert outcome.stderr == ""


def test_where_spark_is_missing_the_demo_says_so_and_goes_on(tmp_path: Path) -> None:
    """And reports as JSON, with nothing else on its output."""
    # Python imports this before anything else, and then takes the package for absent.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyspark'] = None")
    words = ("demo", "--seconds", "3", "--rate", "500", "--json")
    outcome = processes.run(
        *words, environment={"PYTHONPATH": str(tmp_path)}, timeout_s=COMMAND_TIMEOUT_S
    )
    assert outcome.returncode == 0, outcome
    assert outcome.stderr == (
        "The brokers alone are shown. This needs Spark: pip install 'penstock-mq[spark]'.\n"
    )
    summary = json.loads(outcome.stdout)
    assert summary["passed"] is True
    assert summary["produced"] == sum(summary["consumed"].values()) - summary["redelivered"] > 0
    assert all(summary["consumed"].values()), "both controllers have work"
    assert (summary["missing"], summary["doubled"], summary["pipeline"]) == (0, 0, None)
    failover = summary["failover"]
    assert failover["is_complete"] is True
    assert failover["partitions_led"] > 0
    assert failover["writes_paused_s"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["ctrl-c", "hang-up"])
def test_an_interrupted_demo_leaves_no_node_and_no_data_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Also by closing the terminal."""
    environment = processes.clean_environment({"TMPDIR": str(tmp_path)})
    with Shell("127.0.0.1:1").start("demo", "--no-spark", env=environment) as demo:
        assert demo.stdout is not None
        assert any("sensors" in line for line in demo.stdout)
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) == NODES
        os.kill(demo.pid, number)
        _, said = demo.communicate(timeout=COMMAND_TIMEOUT_S)
        assert (demo.returncode, said.strip()) == (128 + number, "")
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.iterdir()) == []
