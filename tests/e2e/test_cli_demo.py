"""`penstock demo` runs to its summary and checks itself."""

import json
import os
import signal
from pathlib import Path

import psutil

from tests.e2e import processes
from tests.e2e.commands import Shell


def test_the_demo_ends_by_itself_with_a_summary() -> None:
    outcome = processes.run("demo", environment={"DEMO_SECONDS": "4"}, timeout_s=90)
    assert outcome.returncode == 0, outcome
    assert "controller-1" in outcome.stdout
    assert "Checked: every reading arrived" in outcome.stdout
    assert outcome.stderr == ""


def test_the_demo_reports_as_json() -> None:
    outcome = processes.run("demo", "--seconds", "3", "--rate", "500", "--json", timeout_s=90)
    assert outcome.returncode == 0, outcome
    summary = json.loads(outcome.stdout)
    assert summary["passed"] is True
    assert summary["produced"] == sum(summary["consumed"].values()) - summary["repeated"] > 0
    assert all(summary["consumed"].values()), "both controllers have work"


def test_ctrl_c_leaves_no_broker_and_no_data_behind(tmp_path: Path) -> None:
    environment = processes.clean_environment({"TMPDIR": str(tmp_path)})
    with Shell("127.0.0.1:1").start("demo", env=environment) as demo:
        assert demo.stdout is not None
        assert "sensors" in demo.stdout.readline()
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) == 1
        os.kill(demo.pid, signal.SIGINT)
        _, said = demo.communicate(timeout=30)
        assert (demo.returncode, said.strip()) == (130, "")
    assert not children[0].is_running()
    assert list(tmp_path.iterdir()) == []
