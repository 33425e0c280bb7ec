"""The command tree: what can be reached, and what is refused before any broker is asked."""

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from penstock import __version__
from penstock.cli.main import cli, main

COMMANDS = [
    "up",
    "topic",
    "produce",
    "consume",
    "group",
    "work",
    "queue",
    "lock",
    "cluster",
    "config",
    "profile",
    "log",
    "schema",
    "sql",
    "bench",
    "doctor",
    "health",
    "pipeline",
    "archive",
    "replay",
    "demo",
    "completion",
]


def run_main(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    code = main()
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    outcome = CliRunner().invoke(cli, [command, "--help"])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.startswith(f"Usage: cli {command}")


def test_the_overview_lists_all_commands() -> None:
    overview = CliRunner().invoke(cli, ["--help"]).output
    # Where a summary takes a second line, that begins further right.
    listed = re.findall(r"^  (\S+)", overview.split("Commands:")[1], flags=re.M)
    assert listed == COMMANDS


@pytest.mark.parametrize(
    "group", ["", "topic", "group", "queue", "lock", "cluster", "config", "log", "pipeline"]
)
def test_summaries_are_not_cut_off(group: str) -> None:
    """Also on a narrow screen, where click would shorten them."""
    outcome = CliRunner().invoke(cli, [*group.split(), "--help"], terminal_width=60)
    assert "Commands:" in outcome.output
    assert "..." not in outcome.output.split("Commands:")[1]


def test_the_version_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["--version"], monkeypatch, capsys) == (0, f"penstock {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["upp"],
        ["topic", "create"],
        ["topic", "alter", "t"],
        ["topic", "create", "t", "--set", "x"],
        ["topic", "create", "t", "--partitions", "0"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "/nowhere/at/all"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--header", "x"],
        ["consume"],
        ["consume", "t", "--from", "yesterday"],
        ["consume", "t", "--follow", "--until", "end"],
        ["consume", "t", "--idle", "1"],
        ["consume", "t", "--group", "g", "--from", "5"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "--group", ""],
        ["consume", "t", "--format", "xml"],
        ["consume", "t", "--format", "%x"],
        ["consume", "t", "--format", "%s", "--json"],
        ["topic", "trim", "t"],
        ["topic", "trim", "t", "--before", "5", "--keep", "5"],
        ["topic", "trim", "t", "--keep", "much"],
        ["config", "list"],
        ["config", "get", "x", "--topic", "t", "--node", "1"],
        ["config", "set", "x", "--topic", "t"],
        ["bench", "--producers", "0"],
        ["bench", "--size", "1"],
        ["doctor", "--kafka", "nonsense"],
        ["group", "reset", "g"],
        ["group", "reset", "g", "--to", "end", "--shift", "1"],
        ["topic", "list", "--bootstrap", "nonsense"],
        ["topic", "list", "--bootstrap", "host:0"],
        ["completion", "tcsh"],
        ["up", "--node", "x"],
        ["up", "--kafka", "0.0.0.0:0"],
        ["up", "--nonsense"],
        ["up", "--set", "no.such.setting=1"],
        ["config", "show", "--log-level", "loud"],
        ["config", "show", "--set", "no.such.setting=1"],
        ["config", "show", "--set", "num.partitions=many"],
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_main(arguments, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1


def test_config_show_tells_value_and_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE", "3")
    code, out, _ = run_main(["config", "show", "--http", ":1"], monkeypatch, capsys)
    rows = [line.split(maxsplit=2) for line in out.splitlines()]
    assert code == 0
    assert ["node", "3", "environment PENSTOCK_NODE"] in rows
    assert ["http", "127.0.0.1:1", "flag --http"] in rows
    assert ["kafka", "127.0.0.1:9392", "default"] in rows


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_main(["completion", shell], monkeypatch, capsys)
    assert code == 0
    assert "_PENSTOCK_COMPLETE" in out


def test_completion_knows_commands_and_options() -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main"],
        env={
            "_PENSTOCK_COMPLETE": "bash_complete",
            "COMP_WORDS": "penstock topic ",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert {"plain,create", "plain,list", "plain,delete"} <= set(outcome.stdout.split())


def test_the_way_to_up_imports_nothing_heavy() -> None:
    heavy = {"confluent_kafka", "rich", "yaml", "asyncio", "tomllib"}
    program = "import sys, penstock.cli.main, penstock.cli.up; print(*sys.modules)"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    loaded = set(outcome.stdout.split())
    assert "penstock.cli.up" in loaded
    assert loaded & heavy == set()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_fault(closed: str) -> None:
    """A file or socket that is opened later must not take the place of one of them."""
    program = (
        "import os, sys; sys.argv = ['penstock', 'config', 'show']; "
        "from penstock.cli.main import main; code = main(); "
        "taken = os.open(os.devnull, os.O_RDONLY); "
        "sys.exit(code or taken < 3)"
    )
    shell = f'"$0" -c "$1" {closed}'
    outcome = subprocess.run(
        ["sh", "-c", shell, sys.executable, program], capture_output=True, text=True, timeout=100
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert ("data_dir" in outcome.stdout) == (">&-" not in closed.replace("2>&-", ""))
