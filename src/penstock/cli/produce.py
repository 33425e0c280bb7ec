"""`penstock produce`: sends records from standard input or a file."""

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.formats import Format
from penstock.cli.interrupts import Interrupted, Interrupts
from penstock.cli.options import client_options, format_options
from penstock.cli.output import counted, print_json
from penstock.cli.produce_input import Header, Input, NewRecord, Reading
from penstock.cli.progress import Advance, progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.client.producer import Producer


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--input",
    "-i",
    "form",
    type=click.Choice([one.value for one in Input]),
    default=Input.LINES.value,
    show_default=True,
    help="A record per line, a JSON object per line (value, key, headers, partition, timestamp), "
    "or the whole input as one value.",
)
@format_options
@click.option(
    "--key-separator", "-k", metavar="TEXT", help=r"What divides key and value; \t is a tab."
)
@click.option("--key", metavar="TEXT", help="The key of every record that brings none.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record that brings none; may be repeated.",
)
@click.option("--partition", "-p", type=click.IntRange(0), metavar="N", help="Where to send to.")
@click.option("--timestamp", type=click.IntRange(0), metavar="MS", help="Time since 1970.")
@click.option("--null", metavar="TEXT", help="Lines with this value get a null value.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Whose acknowledgement to wait for.",
)
@client_options
def produce(
    topic: str, file: BinaryIO, bootstrap: str, timeout_s: float, as_json: bool, **options: Any
) -> None:
    """Send records to TOPIC from FILE or standard input.

    Each line is a record. The exit code is 0 only when the broker has acknowledged all of them.
    """
    sent = _send_all(topic, file, _reading(file, options), bootstrap, timeout_s, options)
    if as_json:
        print_json({"topic": topic, "produced": sent})
    elif sys.stderr.isatty():
        click.echo(f"{counted(sent, 'record')} produced to topic {topic}.", err=True)


def _reading(file: BinaryIO, options: dict[str, Any]) -> Reading:
    separator = options["key_separator"]
    if separator is not None and not separator:
        raise click.UsageError("The key separator must not be empty")
    return Reading(
        form=Input(options["form"]),
        value_format=Format(options["value_format"]),
        key_format=Format(options["key_format"]),
        key_separator=_bytes(separator and separator.replace("\\t", "\t")),
        null=_bytes(options["null"]),
        key=_bytes(options["key"]),
        headers=tuple(_header(pair) for pair in options["headers"]),
        partition=options["partition"],
        timestamp_ms=options["timestamp"],
        name="standard input" if file is sys.stdin.buffer else str(getattr(file, "name", "input")),
    )


def _send_all(
    topic: str,
    file: BinaryIO,
    reading: Reading,
    bootstrap: str,
    timeout_s: float,
    options: dict[str, Any],
) -> int:
    from penstock.client.connection import check_reachable
    from penstock.client.producer import Producer

    check_reachable(bootstrap)
    is_typed = file.isatty()
    with (
        Interrupts() as interrupts,
        progress("Producing (bytes)", _size(file), shown=not is_typed) as advance,
        Producer(
            bootstrap,
            acks=options["acks"],
            compression=options["compression"],
            delivery_timeout_s=max(timeout_s, 1.0) * 4,
        ) as producer,
    ):
        try:
            _send(topic, interrupts.waiting_for(reading.records(file)), producer, advance)
        except (CommandFailed, Interrupted):
            # What was read before the bad line, or before Ctrl-C, still counts.
            producer.flush()
            raise
    return producer.delivered


def _send(
    topic: str, records: "Iterable[NewRecord]", producer: "Producer", advance: Advance
) -> None:
    for record in records:
        producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        advance(record.input_bytes)
        if producer.failed:
            # The rest would most likely fail alike; the producer reports it when it is flushed.
            return


def _size(file: BinaryIO) -> int | None:
    """The length of a regular file; None for a pipe or a terminal."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except (OSError, ValueError):
        return None


def _header(pair: str) -> Header:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.UsageError(f"Header {pair!r} is not NAME=VALUE")
    return name, os.fsencode(value)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)
