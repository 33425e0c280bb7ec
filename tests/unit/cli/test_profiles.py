"""Profiles: clusters by name, and which address a command talks to in the end."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.failures import CommandFailed
from penstock.cli.main import main
from penstock.cli.options import bootstrap_option
from penstock.cli.profiles import Profiles, load_profiles, save_profiles

HERE = "127.0.0.1:9092"


@click.command()
@bootstrap_option
def where(bootstrap: str) -> None:
    click.echo(bootstrap)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the test's own, in a folder that is not there yet."""
    path = tmp_path / "user" / "profiles.toml"
    monkeypatch.setenv("PENSTOCK_PROFILES", str(path))
    for name in ("PENSTOCK_PROFILE", "PENSTOCK_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    return path


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["penstock", "profile", *arguments])
    code = main()
    told = capsys.readouterr()
    return code, told.out, told.err


def address(*arguments: str, **environment: str) -> str:
    outcome = CliRunner().invoke(where, arguments, env=environment, standalone_mode=False)
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output.strip()


def test_profiles_live_from_add_to_remove(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    assert run(capsys, monkeypatch, "add", "staging", "a:1,b:2")[0] == 0
    assert run(capsys, monkeypatch, "add", "live", "c:3", "--use")[0] == 0
    _, listed, _ = run(capsys, monkeypatch, "list")
    assert [line.split() for line in listed.splitlines()[1:]] == [
        ["default", HERE, "-"],
        ["live", "c:3", "yes"],
        ["staging", "a:1,b:2", "-"],
    ]
    assert address() == "c:3"
    assert run(capsys, monkeypatch, "use", "staging")[0] == 0
    assert address() == "a:1,b:2"
    assert run(capsys, monkeypatch, "remove", "staging")[0] == 0
    assert address() == HERE
    assert load_profiles() == Profiles(addresses={"live": "c:3"})
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_what_is_said_more_directly_wins() -> None:
    save_profiles(Profiles(addresses={"one": "one:1", "two": "two:2"}, current="one"))
    assert address() == "one:1"
    assert address(PENSTOCK_PROFILE="two") == "two:2"
    assert address(PENSTOCK_PROFILE="default") == HERE
    assert address(PENSTOCK_PROFILE="two", PENSTOCK_BOOTSTRAP="env:3") == "env:3"
    assert address("--profile", "two", PENSTOCK_BOOTSTRAP="env:3") == "two:2"
    assert address("--bootstrap", "typed:4", PENSTOCK_PROFILE="two") == "typed:4"
    with pytest.raises(click.UsageError, match="can't be combined"):
        address("--bootstrap", "typed:4", "--profile", "two")


def test_an_unknown_profile_is_named_with_those_that_are_known() -> None:
    save_profiles(Profiles(addresses={"one": "one:1"}))
    with pytest.raises(CommandFailed, match="no profile three; the profiles are one"):
        address("--profile", "three")


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "two words", "a:1"),
        ("add", "default", "a:1"),
        ("add", "x", "nonsense"),
        ("add", "x", "a:0"),
    ],
)
def test_what_can_not_be_a_profile_is_refused(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
) -> None:
    code, _, told = run(capsys, monkeypatch, *arguments)
    assert (code, told.count("\n"), file.exists()) == (2, 1, False)


@pytest.mark.parametrize(
    "arguments", [("use", "nobody"), ("remove", "nobody"), ("remove", "default")]
)
def test_what_is_not_there_can_not_be_used_or_removed(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, told = run(capsys, monkeypatch, *arguments)
    assert (code, told.count("\n")) == (1, 1)


def test_a_name_gets_another_address_only_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, monkeypatch, "add", "x", "a:1")
    assert "already exists, for a:1" in run(capsys, monkeypatch, "add", "x", "b:2")[2]
    assert run(capsys, monkeypatch, "add", "x", "b:2", "--replace")[0] == 0
    assert address("--profile", "x") == "b:2"


@pytest.mark.parametrize(
    "text", ["not toml", "current = 5", "profiles = 1", "[profiles.x]\nport = 1", "\0"]
)
def test_a_file_that_can_not_be_read_is_one_sentence(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(CommandFailed, match=r"The profiles in .* can't be read: .*\.$"):
        load_profiles()
