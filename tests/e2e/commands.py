"""Runs Penstock's commands against a broker, as a user would in a shell."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.testing import Broker
from tests.e2e import processes

COMMAND_TIMEOUT_S = 110.0
# Commands that ask a broker give up after five seconds, which a busy machine may need.
ASKING = ("bench", "cluster", "consume", "group", "produce", "queue", "topic")
ANSWER_TIMEOUT_S = "40"


class Shell:
    """A shell whose PENSTOCK_BOOTSTRAP points to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {"PENSTOCK_BOOTSTRAP": bootstrap}

    @classmethod
    def at(cls, broker: Broker) -> "Shell":
        return cls(broker.bootstrap)

    def attempt(
        self, *arguments: str, stdin: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command, whatever comes of it."""
        return processes.run(
            *arguments,
            environment=self.environment,
            stdin=stdin or "",
            timeout_s=COMMAND_TIMEOUT_S,
        )

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a command that must succeed and keep stderr quiet; returns what it printed."""
        if arguments[0] in ASKING and "--timeout" not in arguments:
            arguments = (*arguments, "--timeout", ANSWER_TIMEOUT_S)
        if arguments[0] == "produce":
            # Otherwise it reports there what it has done.
            arguments = (*arguments, "--quiet")
        outcome = self.attempt(*arguments, stdin=stdin)
        assert (outcome.returncode, outcome.stderr) == (0, ""), outcome
        return outcome.stdout

    @contextmanager
    def start(self, *arguments: str, **options: Any) -> "Iterator[subprocess.Popen[str]]":
        """A command that goes on while the test looks; it ends with the block at the latest."""
        process = subprocess.Popen(
            processes.command(*arguments),
            text=True,
            **{
                "env": processes.clean_environment(self.environment),
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=COMMAND_TIMEOUT_S)

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self.run(*arguments, "--json", stdin=stdin))

    def fails(self, *arguments: str, code: int = 1, stdin: str | None = None) -> str:
        """Run a command that must fail; returns its one sentence."""
        outcome = self.attempt(*arguments, stdin=stdin)
        assert outcome.returncode == code, outcome
        assert outcome.stderr.startswith("penstock: "), outcome.stderr
        assert outcome.stderr.count("\n") == 1, outcome.stderr
        return outcome.stderr.removeprefix("penstock: ").strip()


def fresh(name: str) -> str:
    """A name that no other test uses, since they share a broker."""
    return f"{name}-{uuid.uuid4().hex[:8]}"
