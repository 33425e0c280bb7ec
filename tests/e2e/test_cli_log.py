"""`penstock log` on the directory of a stopped node."""

import json
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.testing import ProcessBroker
from tests.e2e import processes
from tests.e2e.commands import Shell

NOWHERE = Shell("127.0.0.1:1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a node that stores ten batches of one record each."""
    with ProcessBroker(tmp_path / "data") as broker, Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("t", f"reading {number}".encode())
            producer.flush()
    return tmp_path / "data"


def segment(directory: Path) -> Path:
    (path,) = [one for one in directory.glob("topics/*/0/*.log") if one.stat().st_size > 0]
    return path


def damage(directory: Path, record: int) -> None:
    """Flip a bit inside the value of one record."""
    path = segment(directory)
    data = bytearray(path.read_bytes())
    data[data.index(f"reading {record}".encode())] ^= 1
    path.write_bytes(data)


def test_a_whole_log_has_no_damage(directory: Path) -> None:
    assert NOWHERE.run("log", "check", str(directory)) == "No damage found.\n"
    assert NOWHERE.run("log", "repair", str(directory)) == "No damage found.\n"
    assert NOWHERE.json("log", "check", str(directory)) == []


def test_damage_is_named_and_nothing_is_changed(directory: Path) -> None:
    damage(directory, 4)
    before = segment(directory).read_bytes()
    outcome = NOWHERE.attempt("log", "check", str(directory), "--json")
    (found,) = json.loads(outcome.stdout)
    assert outcome.returncode == 1
    assert outcome.stderr == f"penstock: {directory} is damaged in 1 place.\n"
    assert found["file"] == str(segment(directory))
    assert 0 < found["position"] < len(before)
    assert segment(directory).read_bytes() == before


def test_a_repair_keeps_what_lies_before_the_damage(directory: Path) -> None:
    damage(directory, 4)
    refused = NOWHERE.attempt("log", "repair", str(directory), stdin="n\n")
    assert refused.returncode == 130
    repaired = NOWHERE.run("log", "repair", str(directory), "--yes")
    assert "kept in files that end in .cut" in repaired
    assert list(directory.glob("topics/*/0/*.cut"))
    assert NOWHERE.run("log", "check", str(directory)) == "No damage found.\n"
    with ProcessBroker(directory) as broker:
        shell = Shell.at(broker)
        kept = shell.run("consume", "t").splitlines()
        assert kept == [f"reading {number}" for number in range(4)]
        shell.run("produce", "t", stdin="more\n")
        assert shell.run("consume", "t").splitlines() == [*kept, "more"]


def test_what_is_no_stopped_node_is_refused(directory: Path, tmp_path: Path) -> None:
    assert NOWHERE.fails("log", "check", str(tmp_path / "none"), code=2)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert str(empty) in NOWHERE.fails("log", "check", str(empty))
    assert list(empty.iterdir()) == []
    with ProcessBroker(directory):
        assert "in use" in NOWHERE.fails("log", "check", str(directory))
        assert "in use" in NOWHERE.fails("log", "repair", str(directory), "--yes")


def test_an_answer_is_asked_for_on_stderr(directory: Path) -> None:
    damage(directory, 0)
    outcome = processes.run("log", "repair", str(directory), "--json", stdin="y\n")
    assert outcome.returncode == 0, outcome
    assert json.loads(outcome.stdout)[0]["lost_bytes"] > 0
    assert "lose everything after it" in outcome.stderr
