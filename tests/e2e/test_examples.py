"""The programs in `examples` run as they are, and check themselves what they show."""

import subprocess
import sys

from tests.documents import ROOT
from tests.e2e.processes import clean_environment

EXAMPLES = ROOT / "examples"
TIMEOUT_S = 100


def run(name: str, *arguments: str) -> str:
    outcome = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert outcome.returncode == 0, f"{outcome.stdout}\n{outcome.stderr}"
    return outcome.stdout


def test_sensors_and_controllers_follow_the_leader_over_http() -> None:
    printed = run("follow_the_leader.py", "--readings", "40")
    assert "both controllers saw all 80 readings once and in order" in printed


def test_a_publisher_and_its_subscribers_survive_a_restart() -> None:
    printed = run("publish_subscribe.py", "--messages", "2000")
    assert "both subscribers acked all 2000 messages" in printed


def test_workers_poll_and_ack_over_grpc_while_a_node_dies() -> None:
    printed = run("poll_and_ack.py", "--jobs", "100")
    assert "all 100 jobs are done; those of the dead worker at attempt 2 or later" in printed


def test_every_program_is_run() -> None:
    tested = {"follow_the_leader.py", "poll_and_ack.py", "publish_subscribe.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
