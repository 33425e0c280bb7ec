"""`penstock health`: asks a node on its HTTP port how it is; for containers and scripts."""

import http.client
import json
import os
import time
from typing import NamedTuple

import click

from penstock import config as node_config
from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import print_json
from penstock.model.endpoint import LOOPBACK, Endpoint, EndpointError, is_wildcard, parse_endpoint

ANSWER_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 65_536
LOOK_S = 0.5
WAIT_S_MAX = 86_400


class Health(NamedTuple):
    is_ok: bool
    # Why not; a sentence.
    detail: str = ""


@click.command()
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="The node's HTTP address; by default, that of the node in the PENSTOCK_* variables.",
)
@click.option(
    "--in-sync",
    is_flag=True,
    help="Also require that every replica on the node is in sync.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, WAIT_S_MAX),
    metavar="SECONDS",
    default=0.0,
    help="Wait for that, at most this long.",
)
@json_option
def health(http: str | None, in_sync: bool, wait_s: float, as_json: bool) -> None:
    """Check that a node serves clients; the exit code is 0 if it does, and 1 if not.

    With --in-sync, the node has also caught up with all others. In a rolling restart, wait for
    that before you stop the next node.
    """
    endpoint = _endpoint(http)
    path = "/health/in-sync" if in_sync else "/health/ready"
    found = _await_health(endpoint, path, wait_s)
    if as_json:
        print_json({"ok": found.is_ok, "detail": found.detail})
    if not found.is_ok:
        raise CommandFailed(found.detail)
    if not as_json:
        click.echo("The node is in sync." if in_sync else "The node is ready.")


def _endpoint(given: str | None) -> Endpoint:
    if given is None:
        found = node_config.load({}, os.environ).http
        if found is None:
            raise CommandFailed("The node's HTTP door is off, so it can't be asked.")
    else:
        try:
            found = parse_endpoint(given)
        except EndpointError as problem:
            raise click.BadParameter(f"{given!r} can't be used: {problem}") from None
    if found.port == 0:
        raise click.BadParameter("say with --http HOST:PORT where the node listens")
    return Endpoint(LOOPBACK, found.port) if is_wildcard(found.host) else found


def _await_health(endpoint: Endpoint, path: str, wait_s: float) -> Health:
    deadline = time.monotonic() + wait_s
    while True:
        found = _ask(endpoint, path)
        left_s = deadline - time.monotonic()
        if found.is_ok or left_s <= 0:
            return found
        time.sleep(min(LOOK_S, left_s))


def _ask(endpoint: Endpoint, path: str) -> Health:
    connection = http.client.HTTPConnection(*endpoint, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status == http.client.OK:
            return Health(True)
        return Health(False, _detail(answer.read(ANSWER_BYTES_MAX)))
    except (OSError, http.client.HTTPException) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Health(False, f"The node at {endpoint} does not answer: {problem}.")
    finally:
        connection.close()


def _detail(body: bytes) -> str:
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = ""
    return str(detail) or "The node is not ready."
