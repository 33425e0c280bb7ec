"""The status of a cluster on a terminal: it fits, and what matters is not cut."""

import io
import re
from typing import Any

import pytest

from penstock.cli.cluster_status import print_status

TOPIC = "telemetry.factory-north.compressors.vibration-spectra.of-all-machines.v2"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def node(number: int, **given: Any) -> dict[str, Any]:
    address = f"node-{number}.eu-central-1b.brokers.example.org:9092"
    counts = {"leaders": 1_000, "replicas": 3_000}
    known = {"node": number, "address": address, "rack": "eu-central-1b", "state": "up"}
    return {**known, "role": "voter", **counts, **given}


def partition(number: int) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "partition": number,
        "leader": 1,
        "replicas": [1, 2, 3],
        "in_sync": [1, 2],
    }


def status(*, sick: int) -> dict[str, Any]:
    moving = {"adding": [4], "removing": [1]}
    return {
        "cluster_id": "5ZpaeE_xReOElmb_MYwifg",
        "controller": 1,
        "nodes": [node(1, role="controller"), node(2), node(3, state="down")],
        "partitions": 3_000,
        "without_leader": [{**partition(n), "leader": None} for n in range(sick // 3)],
        "under_replicated": [partition(n) for n in range(sick)],
        "moving": [{**partition(n), **moving} for n in range(sick // 2)],
    }


def printed(
    monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any], width: int, height: int
) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", str(height))
    print_status(shown)
    return [line.rstrip() for line in STYLE.sub("", terminal.getvalue()).splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
@pytest.mark.parametrize("sick", [0, 1, 5, 300])
def test_it_fits_with_room_for_the_prompt(
    monkeypatch: pytest.MonkeyPatch, width: int, height: int, sick: int
) -> None:
    lines = printed(monkeypatch, status(sick=sick), width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < height


def test_what_matters_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, status(sick=5), 80, 40)
    assert lines[1].split() == ["node", "address", "state", "role", "leaders", "replicas"]
    states = [line.split()[2:] for line in lines[2:5]]
    assert states == [
        ["up", "controller", "1000", "3000"],
        ["up", "voter", "1000", "3000"],
        ["down", "voter", "1000", "3000"],
    ]
    begin = lines.index("5 partitions under-replicated")
    assert lines[begin + 1].split() == ["partition", "leader", "replicas", "in", "sync"]
    sick = [line.split() for line in lines[begin + 2 : begin + 4]]
    # The number of a partition stands at the end of its name, which is cut in its middle.
    assert [row[0][:9] + row[0][-5:] for row in sick] == ["telemetry.v2-0", "telemetry.v2-1"]
    assert [row[1:] for row in sick] == [["1", "1,2,3", "1,2"]] * 2
    wide = printed(monkeypatch, status(sick=5), 140, 40)
    assert "rack" in wide[1].split()
    assert any(line.startswith(f"{TOPIC}-4 ") for line in wide)
