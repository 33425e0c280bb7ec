"""`penstock queue poll` and its companions: single messages of a queue, by their lease tokens.

They speak to the HTTP door of a node, as any script can (docs/how-to/use-queues-with-curl.md).
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from penstock.cli.durations import DURATION
from penstock.cli.failures import CommandFailed
from penstock.cli.options import client_options
from penstock.cli.output import counted, print_json, print_table
from penstock.cli.progress import progress

# Where tokens are taken from instead of the command line.
STDIN = "-"
# Of one request.
TOKENS_MAX = 1_000
MESSAGES_MAX = 1_000
WAIT_S_MAX = 30.0
_COUNTS = ("ready", "leased", "delayed", "blocked", "dying", "dead", "redriven", "expired")

_group = click.argument("name", metavar="GROUP")
_topic = click.argument("topic", metavar="TOPIC")
_tokens = click.argument("tokens", nargs=-1, required=True, metavar="TOKEN...")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """A topic as one group reads it, and how its commands reach it and answer."""

    name: str
    topic: str
    bootstrap: str
    timeout_s: float
    as_json: bool

    def ask(
        self,
        method: str,
        *more: str,
        body: object = None,
        query: str = "",
        wait_s: float = 0.0,
    ) -> Any:
        from penstock.client.cluster_door import open_door, path_of

        path = path_of("queues", self.topic, self.name, *more) + (f"?{query}" if query else "")
        door = open_door(bootstrap=self.bootstrap)
        return door.ask(method, path, body, self.timeout_s + wait_s)


def _on_queue(command: Callable[..., None]) -> Callable[..., None]:
    """The command gets a `_Queue`, and what is declared below this. The user names GROUP and TOPIC
    first, and the options of all commands come last in the help."""
    own = command.__dict__.pop("__click_params__", [])

    @wraps(command)
    def run(
        name: str, topic: str, bootstrap: str, timeout_s: float, as_json: bool, **options: Any
    ) -> None:
        queue = _Queue(
            name=name, topic=topic, bootstrap=bootstrap, timeout_s=timeout_s, as_json=as_json
        )
        command(queue, **options)

    named = client_options(run)
    named.__dict__["__click_params__"] += own
    return _group(_topic(named))


@click.command()
@_on_queue
@click.option(
    "--max", "-n", "count_max", type=click.IntRange(1, MESSAGES_MAX), default=1, show_default=True,
    metavar="N", help="Lease at most N messages.",
)  # fmt: skip
@click.option(
    "--lease", "lease_ms", type=DURATION, metavar="DURATION",
    help="How long the messages are leased, from 1s to 12h; the queue's setting by default.",
)  # fmt: skip
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, WAIT_S_MAX), default=0.0, show_default=True,
    metavar="SECONDS", help="How long to wait for the first message.",
)  # fmt: skip
def poll(queue: _Queue, count_max: int, lease_ms: int | None, wait_s: float) -> None:
    """Lease messages of TOPIC, each with a token to ack it.

    The group needs no consumers, and a new queue starts with the oldest record. A message whose
    lease ends without an ack is delivered again.
    """
    body: dict[str, object] = {"limit": count_max, "wait_ms": int(wait_s * 1000)}
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    found = queue.ask("POST", "poll", body=body, wait_s=wait_s)
    _print_messages(found["messages"], ("token",), queue.as_json)


@click.command()
@_on_queue
@click.option(
    "--max", "-n", "count_max", type=click.IntRange(1, MESSAGES_MAX), default=10,
    show_default=True, metavar="N", help="Show at most N messages.",
)  # fmt: skip
def peek(queue: _Queue, count_max: int) -> None:
    """Show what would be delivered next, without leasing it."""
    found = queue.ask("GET", "peek", query=f"limit={count_max}")
    _print_messages(found["messages"], (), queue.as_json)


def _print_messages(messages: Sequence[dict[str, Any]], more: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(messages)
        return
    columns = ("partition", "offset", "attempt", "key", "value", *more)
    rows = [[_shown(each[column]) for column in columns] for each in messages]
    print_table(columns, rows)


def _shown(content: object) -> str | int | None:
    if content is None or isinstance(content, str | int):
        return content
    return json.dumps(content, ensure_ascii=False)


# Tokens


@click.command()
@_on_queue
@_tokens
def ack(queue: _Queue, tokens: tuple[str, ...]) -> None:
    """Acknowledge messages.

    With - as TOKEN, reads tokens from standard input, one per line.
    """
    _settle(queue, "ack", tokens, {})


@click.command()
@_on_queue
@_tokens
@click.option(
    "--delay", "delay_ms", type=DURATION, metavar="DURATION",
    help="How long until they are tried again, at most 24h; the queue's backoff by default.",
)  # fmt: skip
def nack(queue: _Queue, tokens: tuple[str, ...], delay_ms: int | None) -> None:
    """Give messages back, to be tried again.

    With - as TOKEN, reads tokens from standard input, one per line.
    """
    body = {} if delay_ms is None else {"delay_ms": delay_ms}
    _settle(queue, "nack", tokens, body)


@click.command()
@_on_queue
@_tokens
@click.option(
    "--lease", "lease_ms", type=DURATION, metavar="DURATION",
    help="How long the leases last from now on, from 1s to 12h; the queue's setting by default.",
)  # fmt: skip
def extend(queue: _Queue, tokens: tuple[str, ...], lease_ms: int | None) -> None:
    """Renew the leases of messages.

    With - as TOKEN, reads tokens from standard input, one per line.
    """
    body = {} if lease_ms is None else {"lease_ms": lease_ms}
    _settle(queue, "extend", tokens, body)


@click.command()
@_on_queue
@_tokens
def reject(queue: _Queue, tokens: tuple[str, ...]) -> None:
    """Give messages up: they go to the dead-letter topic, if the queue has one.

    With - as TOKEN, reads tokens from standard input, one per line.
    """
    _settle(queue, "reject", tokens, {})


def _settle(queue: _Queue, verb: str, tokens: Sequence[str], body: dict[str, Any]) -> None:
    from penstock.client.http_door import HttpRefused

    results: list[dict[str, Any]] = []
    for some in _in_parts(list(_all_tokens(tokens))):
        asked = {**body, "tokens": some}
        try:
            found = queue.ask("POST", verb, body=asked)
        except HttpRefused as refused:
            if "results" not in refused.document:
                raise
            found = refused.document
        results += found["results"]
    good = sum(each["outcome"] == "ok" for each in results)
    if queue.as_json:
        print_json(results)
    else:
        click.echo(f"{verb}: {counted(good, 'message')} of {len(results):,}")
    if good < len(results):
        bad = next(each for each in results if each["outcome"] != "ok")
        more = f" ({len(results) - good} tokens failed)" if len(results) - good > 1 else ""
        raise CommandFailed(f"{bad['token']}: {bad['detail']}{more}")


def _all_tokens(given: Iterable[str]) -> Iterable[str]:
    for token in given:
        if token == STDIN:
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield token


def _in_parts(tokens: list[str]) -> Iterable[list[str]]:
    for begin in range(0, len(tokens), TOKENS_MAX):
        yield tokens[begin : begin + TOKENS_MAX]


# The queue as a whole


@click.command()
@_on_queue
def stats(queue: _Queue) -> None:
    """Show how many messages of TOPIC are ready, leased, delayed and dead."""
    found = queue.ask("GET")
    if queue.as_json:
        print_json(found)
        return
    age_ms = found["oldest_age_ms"]
    age = "" if age_ms is None else f", the oldest message is {age_ms / 1000:.1f} s old"
    paused = " is paused" if found["paused"] else ""
    click.echo(f"Queue {queue.name} of {queue.topic}{paused}{age}")
    rows = [
        (each["partition"], *(each[count] for count in _COUNTS)) for each in found["partitions"]
    ]
    print_table(("partition", *_COUNTS), rows)


@click.command()
@_on_queue
@click.option("--yes", is_flag=True, help="Do not ask before messages are dropped.")
def purge(queue: _Queue, yes: bool) -> None:
    """Drop all messages of TOPIC that are ready, delayed or blocked.

    Leased messages stay with their workers, and the records stay in the topic for other readers.
    """
    found, topic = queue.ask("GET"), queue.topic
    waiting = found["ready"] + found["delayed"] + found["blocked"]
    if waiting and not yes:
        click.confirm(f"Drop {counted(waiting, 'message')} of {topic}", abort=True, err=True)
    count = 0
    partitions = [each["partition"] for each in found["partitions"]]
    with progress(f"Purging {topic}", len(partitions), shown=not queue.as_json) as advance:
        for partition in partitions:
            body = {"partitions": [partition]}
            count += queue.ask("POST", "purge", body=body)["purged"]
            advance(1)
    if queue.as_json:
        print_json({"purged": count})
    else:
        click.echo(f"{counted(count, 'message')} of {topic} dropped from {queue.name}")


@click.command()
@_on_queue
def pause(queue: _Queue) -> None:
    """Deliver nothing of TOPIC to the group for now."""
    queue.ask("POST", "pause", body={})
    _report(queue, "paused")


@click.command()
@_on_queue
def resume(queue: _Queue) -> None:
    """Deliver TOPIC to the group again."""
    queue.ask("POST", "resume", body={})
    _report(queue, "resumed")


def _report(queue: _Queue, word: str) -> None:
    if queue.as_json:
        print_json({"group": queue.name, "topic": queue.topic, "paused": word == "paused"})
    else:
        click.echo(f"Queue {queue.name} of {queue.topic} is {word}")


COMMANDS = (poll, peek, ack, nack, extend, reject, stats, purge, pause, resume)
