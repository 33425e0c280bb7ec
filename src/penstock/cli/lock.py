"""`penstock lock`: shows locks, and runs a command while it holds one."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import (
    Command,
    bootstrap_option,
    check_addresses,
    json_option,
    timeout_option,
)
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.http_door import HttpDoor
    from penstock.client.lock import Lock

LEASE_S: Final = 30.0
# Between asking a command to end because the lock is lost, and ending it.
TERMINATE_S: Final = 5.0


def door_options(command: Command) -> Command:
    """Where the cluster is, or where its HTTP doors are; `_door` says which counts."""
    http = click.option(
        "--http",
        metavar="HOST:PORT",
        default="",
        envvar="PENSTOCK_HTTP_ADDRESS",
        show_envvar=True,
        callback=_http,
        help="HTTP address of a node, instead of --bootstrap; separate several with commas.",
    )
    return bootstrap_option(http(command))


def _http(context: click.Context, parameter: click.Parameter, given: str) -> str:
    return check_addresses(given) if given else ""


def _door(bootstrap: str, http: str) -> "HttpDoor":
    """What was typed beats the environment."""
    from penstock.client.cluster_door import open_door

    source = click.get_current_context().get_parameter_source
    is_typed = source("http") is ParameterSource.COMMANDLINE
    is_other_typed = ParameterSource.COMMANDLINE in (source("bootstrap"), source("profile"))
    if is_typed and is_other_typed:
        raise click.UsageError("--http can't be combined with --bootstrap or --profile")
    if http and not is_other_typed:
        return open_door(http=http, is_repeatable=True)
    return open_door(bootstrap=bootstrap, is_repeatable=True)


@click.group(cls=CommandGroup)
def lock() -> None:
    """Show locks, and run a command while holding one."""


@lock.command("list")
@door_options
@timeout_option
@json_option
def list_all(bootstrap: str, http: str, timeout_s: float, as_json: bool) -> None:
    """List the locks that somebody holds."""
    from penstock.client.lock import list_locks

    found = list_locks(_door(bootstrap, http), timeout_s)
    if as_json:
        print_json(found)
        return
    rows = [
        (one["name"], one["fencing_token"], one["left_ms"], one["waiters"], one["owner"])
        for one in found
    ]
    print_table(("name", "token", "left ms", "waiters", "owner"), rows)


@lock.command()
@click.argument("name")
@door_options
@timeout_option
@json_option
def show(name: str, bootstrap: str, http: str, timeout_s: float, as_json: bool) -> None:
    """Show who holds a lock, and for how long."""
    from penstock.client.lock import describe_lock

    found = describe_lock(_door(bootstrap, http), name, timeout_s)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"Lock {found['name']} is held by {found['owner']} with token {found['fencing_token']}. "
        f"Its lease of {found['lease_ms']} ms ends in {found['left_ms']} ms unless it is renewed. "
        f"{found['waiters']} wait for it."
    )


@lock.command()
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(min=1.0, max=12 * 3600.0),
    default=LEASE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the lock stays taken after this command dies; renewed until then.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="How long to wait for the lock; 0 tries once, and without it there is no limit.",
)
@door_options
def run(
    name: str,
    command: tuple[str, ...],
    lease_s: float,
    wait_s: float | None,
    bootstrap: str,
    http: str,
) -> int:
    """Run a command while holding a lock.

    The exit code is the command's. It finds the fencing token in PENSTOCK_FENCING_TOKEN, and is
    ended if the lock is lost.
    """
    from penstock.client.lock import Lock, LockLost

    ended = _Ending()
    held = Lock(name, door=_door(bootstrap, http), lease_s=lease_s, on_lost=ended.lose)
    held.acquire(wait_s)
    try:
        code = ended.run(held, command)
    finally:
        with suppress(LockLost):
            held.release()
    if ended.is_lost:
        raise CommandFailed(f"The lock {name} was lost, and the command was ended.")
    return code


class _Ending:
    """The command, and what ends it early."""

    def __init__(self) -> None:
        self.is_lost = False
        self._process: subprocess.Popen[bytes] | None = None
        # The command may start a moment before or after the lock is lost.
        self._guard = threading.Lock()
        # At a terminal the command stays in the foreground, and Ctrl-C reaches it there.
        self._has_own_group = not sys.stdin.isatty()

    def run(self, held: "Lock", command: tuple[str, ...]) -> int:
        environment = {
            **os.environ,
            "PENSTOCK_LOCK": held.name,
            "PENSTOCK_FENCING_TOKEN": str(held.fencing_token),
        }
        with self._signals_passed_on():
            with self._guard:
                if self.is_lost:
                    return 1
                self._process = _started(command, environment, own_group=self._has_own_group)
            code = self._process.wait()
        return code if code >= 0 else 128 - code

    def lose(self) -> None:
        """In the thread that renews the lock."""
        with self._guard:
            self.is_lost = True
            process = self._process
        if process is None:
            return
        self._send(signal.SIGTERM)
        try:
            process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if self._has_own_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    @contextmanager
    def _signals_passed_on(self) -> "Iterator[None]":
        def pass_on(number: int, _: FrameType | None) -> None:
            if number == signal.SIGTERM or self._has_own_group:
                self._send(number)

        numbers = (signal.SIGTERM, signal.SIGINT)
        before: dict[int, Any] = {number: signal.signal(number, pass_on) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _started(
    command: tuple[str, ...], environment: dict[str, str], *, own_group: bool
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(command, env=environment, process_group=0 if own_group else None)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandFailed(f"{command[0]} can't be started: {reason}.") from None
