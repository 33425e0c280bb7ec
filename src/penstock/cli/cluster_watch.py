"""`penstock cluster status --watch`: the status again and again, also while nobody answers."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from penstock.cli.cluster_status import print_status
from penstock.client.errors import ClientError

Look = Callable[[], dict[str, Any]]


def watch(
    look: Look, every_s: float, as_json: bool, pause: Callable[[float], None] = time.sleep
) -> None:
    """Until a signal ends it; a cluster that can't be reached at the start is a mistake."""
    status = look()
    while True:
        _show(status, as_json)
        pause(every_s)
        status = _attempt(look)


def _attempt(look: Look) -> dict[str, Any]:
    """An outage is what somebody who watches wants to see."""
    try:
        return look()
    except ClientError as error:
        return {"error": str(error)}


def _show(status: dict[str, Any], as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        at = now.isoformat(timespec="seconds")
        click.echo(json.dumps({"at": at, **status}, ensure_ascii=False))
    else:
        # A terminal shows the newest look alone; elsewhere each begins with its time.
        click.clear()
        click.echo(f"{now.astimezone():%Y-%m-%d %H:%M:%S}")
        if "error" in status:
            click.echo(status["error"])
        else:
            print_status(status)
    sys.stdout.flush()
