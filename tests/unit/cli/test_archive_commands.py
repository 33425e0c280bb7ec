"""Proves that `penstock archive` takes a topic or a command, and what bounds of a replay may be."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from penstock.cli.archive import archive
from penstock.cli.replay import replay
from penstock.cli.replay_bounds import Moment
from penstock.pipelines.archives.refusals import ArchiveRefused
from tests.unit.pipelines.archives.rig import TestArchive


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Commands with their parameters, instead of what they do."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def note(name: str) -> Any:
        return lambda **given: calls.append((name, given))

    for name, command in [*archive.commands.items(), ("replay", replay)]:
        monkeypatch.setattr(command, "callback", note(name))
    return calls


def run(command: click.Command, *words: str) -> str:
    outcome = CliRunner().invoke(command, words)
    return outcome.output if outcome.exit_code else ""


@pytest.mark.parametrize(
    "words",
    [
        ("readings", "--to", "there"),
        ("--to", "there", "readings"),
        ("topic", "readings", "--to", "there"),
    ],
)
def test_a_word_that_is_no_command_is_a_topic(
    called: list[tuple[str, dict[str, Any]]], words: tuple[str, ...]
) -> None:
    assert run(archive, *words) == ""
    ((name, given),) = called
    assert (name, given["name"], given["path"]) == ("topic", "readings", "there")


def test_a_topic_may_be_called_like_a_command(called: list[tuple[str, dict[str, Any]]]) -> None:
    assert run(archive, "topic", "verify", "--to", "there") == ""
    assert run(archive, "verify", "there") == ""
    assert [(name, given.get("name"), given["path"]) for name, given in called] == [
        ("topic", "verify", "there"),
        ("verify", None, "there"),
    ]


def test_help_shows_both(called: list[tuple[str, dict[str, Any]]]) -> None:
    shown = CliRunner().invoke(archive, ["--help"]).output
    assert "penstock archive TOPIC --to PATH" in shown
    assert "verify" in shown
    assert "Missing option '--to'" in run(archive, "readings")
    assert called == []


def test_bounds_of_a_replay(called: list[tuple[str, dict[str, Any]]]) -> None:
    words = ["there", "--to", "t", "--from-offset", "5", "--from-offset", "2:9"]
    assert run(replay, *words, "--until-offset", "7", "--from-time", "@1500") == ""
    ((_, given),) = called
    assert dict(given["from_offset"]) == {None: 5, 2: 9}
    assert dict(given["until_offset"]) == {None: 7}
    assert (given["from_time"], given["until_time"]) == (Moment(ms=1500), None)


def test_how_long_ago_is_known_again(called: list[tuple[str, dict[str, Any]]]) -> None:
    times = ["--from-time", "2H", "--until-time", "2026-05-01T12:00Z"]
    assert run(replay, "there", "--to", "t", *times) == ""
    ((_, given),) = called
    assert given["from_time"].words == "2h"
    assert given["until_time"] == Moment(ms=1_777_636_800_000)


def test_a_wrong_bound_makes_no_topic(tmp_path: Path) -> None:
    """It is found out before anybody asks for a broker, of which there is none here."""
    TestArchive(tmp_path).filled()
    words = [str(tmp_path), "--to", "t", "--from-offset", "7:1", "--bootstrap", "127.0.0.1:1"]
    refused = CliRunner().invoke(replay, words).exception
    assert isinstance(refused, ArchiveRefused)
    assert "there is no partition 7" in str(refused)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--from-offset", "x", "neither an offset nor PARTITION:OFFSET"),
        ("--until-offset", "-1", "neither an offset nor PARTITION:OFFSET"),
        ("--from-time", "5", "'5' is not a time"),
        ("--until-time", "soon", "'soon' is not a time"),
    ],
)
def test_what_is_no_bound_is_named(option: str, value: str, words: str) -> None:
    assert words in " ".join(run(replay, "there", "--to", "t", option, value).split())
