"""Commands never hang and never show a traceback, whatever the broker does."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell
from tests.e2e.processes import Broker
from tests.e2e.stopwatch import check_quick, seconds_of

COMMANDS = [
    ("topic", "list"),
    ("topic", "trim", "t", "--keep", "1"),
    ("config", "list", "--topic", "t"),
    ("config", "set", "retention.ms=1", "--node", "0"),
    ("bench",),
    ("topic", "create", "t"),
    ("topic", "describe", "t"),
    ("topic", "delete", "t"),
    ("topic", "alter", "t", "--set", "retention.ms=1"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "--group", "g"),
    ("group", "list"),
    ("group", "describe", "g"),
    ("group", "reset", "g", "--to", "end"),
    ("group", "delete", "g"),
]


# Nobody waits for it: without a broker there is nothing to wait for.
PATIENCE_S = 1_000


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens, and where nobody else can begin to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def mute() -> Iterator[str]:
    """A listener that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_broker_is_one_sentence_within_five_seconds(
    command: tuple[str, ...], nobody: str
) -> None:
    def ask() -> None:
        sentence = Shell(nobody).fails(*command, "--timeout", str(PATIENCE_S), stdin="x\n")
        assert sentence == f"No broker answers at {nobody}: connection refused."

    check_quick(lambda: seconds_of(ask), 5)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_broker_that_never_answers_is_given_up(command: tuple[str, ...], mute: str) -> None:
    sentence = Shell(mute).fails(*command, "--timeout", "1", stdin="x\n")
    assert sentence.startswith(f"No broker answers at {mute}: ")


def test_a_broker_that_dies_fails_the_producer(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").start()
    try:
        shell = Shell(broker.bootstrap)
        shell.run("produce", "t", stdin="x\n")
        broker.kill()
        assert "No broker answers" in shell.fails("produce", "t", stdin="x\n")
        broker.start()
        assert shell.run("consume", "t") == "x\n"
    finally:
        broker.close()


def test_a_follower_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").start()
    try:
        shell = Shell(broker.bootstrap)
        shell.run("produce", "t", stdin="before\n")
        with shell.start("consume", "t", "--follow", "--max", "2") as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "before\n"
            broker.kill()
            broker.start()
            shell.run("produce", "t", stdin="after\n")
            out, err = reader.communicate(timeout=COMMAND_TIMEOUT_S)
            assert (reader.returncode, out, err) == (0, "after\n", "")
    finally:
        broker.close()
