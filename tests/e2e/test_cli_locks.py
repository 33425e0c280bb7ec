"""`penstock lock` against a real broker: a command runs alone, and ends with its lock."""

import json
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell, fresh
from tests.e2e.processes import Broker
from tests.waiting import wait_until


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap)


def run(shell: Shell, name: str, *words: str) -> tuple[int, str, str]:
    outcome = shell.attempt("lock", "run", *words[:-1], name, "--", "sh", "-c", words[-1])
    return outcome.returncode, outcome.stdout, outcome.stderr


def test_commands_that_need_the_same_lock_run_one_after_the_other(
    shell: Shell, tmp_path: Path
) -> None:
    name, gate = fresh("lock"), tmp_path / "gate"
    script = (
        f"echo $PENSTOCK_LOCK $PENSTOCK_FENCING_TOKEN; while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    with shell.start("lock", "run", "--lease", "2", name, "--", "sh", "-c", script) as first:
        assert first.stdout is not None
        shown, token = first.stdout.readline().split()
        assert shown == name
        found = json.loads(shell.run("lock", "show", name, "--json"))
        assert (found["fencing_token"], found["lease_ms"]) == (int(token), 2_000)
        assert name in shell.run("lock", "list")
        code, _, error = run(shell, name, "--wait", "0", "true")
        assert (code, "is held by" in error) == (1, True)
        with shell.start("lock", "run", name, "--", "sh", "-c", "echo second; exit 3") as second:
            wait_until(
                "it waits",
                lambda: json.loads(shell.run("lock", "show", name, "--json"))["waiters"] == 1,
            )
            gate.touch()
            out, error = second.communicate(timeout=COMMAND_TIMEOUT_S)
            assert (second.returncode, out, error) == (3, "second\n", "")
        assert first.wait(COMMAND_TIMEOUT_S) == 0
    free = shell.attempt("lock", "show", name)
    assert (free.returncode, free.stderr) == (1, f"penstock: Nobody holds the lock {name}.\n")


def test_a_command_ends_when_its_lock_is_lost(broker: Broker, shell: Shell) -> None:
    name = fresh("lock")
    script = "echo on; trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.05; done"
    with shell.start("lock", "run", "--lease", "1", name, "--", "sh", "-c", script) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n"
        os.kill(holder.pid, signal.SIGSTOP)
        body = {"owner": "another", "wait_ms": 60_000}
        taken = httpx.post(
            f"http://{broker.http}/v1/locks/{name}/acquire", json=body, timeout=COMMAND_TIMEOUT_S
        )
        assert taken.status_code == 200, taken.text
        os.kill(holder.pid, signal.SIGCONT)
        out, error = holder.communicate(timeout=COMMAND_TIMEOUT_S)
    assert (holder.returncode, out) == (1, "asked to end\n")
    assert f"The lock {name} was lost, and the command was ended." in error


def test_what_can_not_be_done_is_one_sentence(shell: Shell) -> None:
    name = fresh("lock")
    outcome = shell.attempt("lock", "run", name, "--", "/no/such/command")
    assert (outcome.returncode, outcome.stderr) == (
        1,
        "penstock: /no/such/command can't be started: no such file or directory.\n",
    )
    outcome = shell.attempt("lock", "run", "a b", "--", "true")
    assert outcome.returncode == 1
    assert "can't be the name of a lock" in outcome.stderr
    outcome = shell.attempt("lock", "list", "--http", "127.0.0.1:1")
    assert (outcome.returncode, outcome.stderr) == (
        1,
        "penstock: No HTTP door answers at 127.0.0.1:1: connection refused.\n",
    )


def test_doors_are_found_by_any_of_the_addresses(broker: Broker, shell: Shell) -> None:
    """By the cluster's, by the doors' own, and what was typed beats the environment."""
    shell.environment["PENSTOCK_HTTP_ADDRESS"] = "127.0.0.1:1"
    assert shell.attempt("lock", "list").returncode == 1
    shell.run("lock", "list", "--bootstrap", broker.bootstrap)
    shell.run("lock", "list", "--http", str(broker.http))
    both = shell.attempt("lock", "list", "--http", str(broker.http), "-b", broker.bootstrap)
    assert (both.returncode, "--http can't be combined" in both.stderr) == (2, True)
    del shell.environment["PENSTOCK_HTTP_ADDRESS"]
    nobody = shell.attempt("lock", "list", "--bootstrap", "127.0.0.1:1")
    assert nobody.stderr == "penstock: No broker answers at 127.0.0.1:1: connection refused.\n"
