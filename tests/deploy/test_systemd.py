"""Proves that the systemd unit is one that systemd accepts, and that a node plays its part in it.

systemd itself does not run here: `systemd-analyze` reads the unit, and a socket of the test stands
for the service manager.
"""

import configparser
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.documents import ROOT
from tests.e2e.conftest import MakeBroker
from tests.e2e.conftest import make_broker as make_broker
from tests.waiting import wait_until

UNIT = ROOT / "deploy" / "systemd" / "penstock.service"
PROGRAM = "/opt/penstock/bin/penstock"
# What `systemd-analyze security` calls OK; 10 is a service without any protection.
EXPOSURE_MAX = 2.0
HEARS_S = 60.0


@pytest.fixture
def analyze() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("not installed: systemd-analyze (Debian's package systemd)")
    return program


def test_systemd_accepts_the_unit(analyze: str, tmp_path: Path) -> None:
    """Only the program's place is another one here, which has to exist."""
    unit = tmp_path / UNIT.name
    installed = Path(sys.executable).with_name("penstock")
    unit.write_text(UNIT.read_text().replace(PROGRAM, str(installed)))
    outcome = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    ours = [line for line in outcome.stderr.splitlines() if UNIT.name in line]
    assert (outcome.returncode, ours) == (0, []), outcome.stderr


def test_the_unit_leaves_little_open(analyze: str) -> None:
    words = [analyze, "security", "--no-pager", "--offline=true", str(UNIT)]
    outcome = subprocess.run(words, capture_output=True, text=True)
    level = re.search(r"exposure level for penstock\.service: ([\d.]+)", outcome.stdout)
    assert level, outcome.stdout + outcome.stderr
    assert float(level[1]) <= EXPOSURE_MAX


def test_the_unit_starts_the_documented_program() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert service["ExecStart"] == f"{PROGRAM} up"
    assert service["Type"] == "notify"
    page = (ROOT / "docs" / "how-to" / "run-with-systemd.md").read_text()
    for named in (PROGRAM, service["EnvironmentFile"].removeprefix("-"), "/var/lib/penstock"):
        assert named in page, named


def test_a_node_says_that_it_is_ready_lives_and_stops(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(HEARS_S)
        broker = make_broker()
        broker.start(environment={"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": str(3 * 100_000)})
        ready = manager.recv(4096).decode()
        assert ready == f"READY=1\nSTATUS=Node 0 serves Kafka clients at {broker.bootstrap}."
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        doors = _door_process(broker.pid, broker.http)
        assert "NOTIFY_SOCKET" not in doors.environ(), "it would be taken for the broker"
        assert broker.terminate() == 0
        # Between signs of life; out of time if it never comes.
        while not manager.recv(4096).startswith(b"STOPPING=1\n"):
            pass


def _door_process(pid: int, http: str) -> psutil.Process:
    host, port = http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=HEARS_S):
        broker = psutil.Process(pid)
        wait_until("the doors' process starts", broker.children)
        return broker.children()[0]
