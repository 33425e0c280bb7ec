"""`penstock doctor`: what it finds on a machine, good and bad."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from penstock.cli import checks
from penstock.cli.checks import Finding, State
from penstock.cli.main import main
from penstock.config import load


def only(found: object) -> Finding:
    (finding,) = found  # type: ignore[misc]
    assert isinstance(finding, Finding)
    return finding


def test_an_interpreter_that_was_compiled_without_profiles_gets_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As `./configure` leaves it, as pyenv does; with the option; and as Debian compiles its own.
    builds = [
        ({"CONFIG_ARGS": "'--enable-shared'", "PGO_PROF_USE_FLAG": "-fprofile-use"}, State.WARNING),
        ({"CONFIG_ARGS": "'--enable-optimizations'", "PGO_PROF_USE_FLAG": "-f"}, State.OK),
        ({"CONFIG_ARGS": "'--enable-shared'", "PGO_PROF_USE_FLAG": ""}, State.OK),
        ({}, State.OK),
    ]
    for variables, state in builds:
        monkeypatch.setattr("sysconfig.get_config_var", variables.get)
        found = only(checks.python())
        assert (found.state, "--enable-optimizations" in found.advice) == (
            state,
            state is State.WARNING,
        )


def test_a_free_port_is_ok_and_a_taken_one_is_a_problem_with_its_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "ANSWER_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # It never answers, so it is not a broker.
        port = taken.getsockname()[1]
        found = only(
            checks.ports(load({"kafka": f"127.0.0.1:{port}", "grpc": "off", "http": "off"}, {}))
        )
    assert found.state is State.PROBLEM
    assert "already in use" in found.text
    if sys.platform == "linux":
        assert f"(process {os.getpid()})" in found.text
    assert "--kafka" in found.advice
    assert (
        only(
            checks.ports(load({"kafka": f"127.0.0.1:{port}", "grpc": "off", "http": "off"}, {}))
        ).state
        is State.OK
    )


def test_all_doors_of_a_member_are_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"kafka": ":0", "grpc": ":1", "http": f":{port}", "cluster": "0=127.0.0.1:19095"}
        found = list(checks.ports(load(flags, {})))
    assert [one.name for one in found] == ["port 0", "port 1", f"port {port}", "port 19095"]
    assert found[2].state is State.PROBLEM
    assert "--http" in found[2].advice


def test_a_data_directory_that_can_be_made_is_ok(tmp_path: Path) -> None:
    found = only(checks.data_directory(tmp_path / "a" / "b"))
    assert found.state is not State.PROBLEM
    assert "will be created" in found.text
    assert not (tmp_path / "a").exists()


def test_a_file_in_place_of_the_data_directory_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = only(checks.data_directory(tmp_path / "file"))
    assert (found.state, "not a directory" in found.text) == (State.PROBLEM, True)


@pytest.mark.parametrize(
    ("kind", "state"),
    [("ext4", State.OK), (None, State.OK), ("tmpfs", State.WARNING), ("nfs4", State.WARNING)],
)
def test_file_systems_that_lose_data_get_a_warning(
    kind: str | None, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_file_system", lambda place: kind)
    found = only(checks.data_directory(tmp_path))
    assert (found.state, bool(found.advice)) == (state, state is State.WARNING)


@pytest.mark.parametrize(
    ("free", "state"),
    [(1 << 20, State.PROBLEM), (5 << 30, State.WARNING), (50 << 30, State.OK)],
)
def test_too_little_space_is_told(
    free: int, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        total = 100 << 30

    Usage.free = free  # type: ignore[attr-defined]
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda place: Usage)
    assert only(checks.disk_space(tmp_path / "data")).state is state


@pytest.mark.parametrize(
    ("times_ms", "state"),
    [([1.0] * 20, State.OK), ([30.0] * 20, State.WARNING), ([1.0] * 19 + [900.0], State.PROBLEM)],
)
def test_slow_syncs_are_told(
    times_ms: list[float], state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_sync_times_ms", lambda place: times_ms)
    assert only(checks.sync_speed(tmp_path)).state is state


def test_the_measured_sync_leaves_no_file_behind(tmp_path: Path) -> None:
    assert "ms at worst, in 20 tries" in only(checks.sync_speed(tmp_path / "data")).text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("hard", "state"),
    [(-1, State.OK), (65_536, State.OK), (4_096, State.WARNING), (256, State.PROBLEM)],
)
def test_a_low_limit_of_open_files_is_told(
    hard: int, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.resource, "getrlimit", lambda kind: (256, hard))
    assert only(checks.open_files()).state is state


@pytest.mark.parametrize(
    ("said", "state"),
    [("yes", State.OK), ("no", State.WARNING), (None, State.OK)],
)
def test_a_clock_that_nobody_sets_is_told(
    said: str | None, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_said", lambda command: said)
    assert only(checks.clock()).state is state


@pytest.mark.parametrize(
    ("spark", "java", "states"),
    [
        (None, None, [State.OK, State.OK]),
        ("4.3.0", None, [State.OK, State.WARNING]),
        ("4.3.0", 'openjdk version "11.0.2" 2019-01-15', [State.OK, State.WARNING]),
        ("4.3.0", 'openjdk version "21.0.2" 2024-01-16', [State.OK, State.OK]),
    ],
)
def test_java_matters_where_spark_is(
    spark: str | None,
    java: str | None,
    states: list[State],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "_version", lambda package: spark)
    monkeypatch.setattr(checks, "_java", lambda: "java")
    monkeypatch.setattr(checks, "_said", lambda command: java)
    assert [one.state for one in checks.java_and_spark()] == states


def test_a_missing_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_version", lambda package: None)
    found = only(checks.packages())
    assert (found.state, "uvloop" in found.text) == (State.PROBLEM, True)


def test_the_command_ends_with_1_when_there_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "file"
    bad.write_text("")
    for directory, code in ((tmp_path, 0), (bad, 1)):
        arguments = ["doctor", "--kafka", "127.0.0.1:0", "--data-dir", str(directory), "--json"]
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        monkeypatch.setattr(checks, "disk_space", lambda place: iter(()))
        monkeypatch.setattr(checks, "sync_speed", lambda place: iter(()))
        assert main() == code
        told = json.loads(capsys.readouterr().out)
        assert told["ok"] is (code == 0)
        assert {"name", "state", "text", "advice"} == set(told["checks"][0])
