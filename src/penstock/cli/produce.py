"""`penstock produce`: sends records from standard input or a file."""

import os
import sys
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from penstock.cli.formats import Format
from penstock.cli.interrupts import Interrupted, Interrupts
from penstock.cli.options import client_options, format_options
from penstock.cli.output import counted, print_json
from penstock.cli.produce_input import Header, Input, NewRecord, Reading
from penstock.cli.progress import progress
from penstock.client.errors import DeliveryFailed
from penstock.model.errors import Explained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.wire.records import RecordProducer

# How long a broker may take at least, and how many times that until records are given up.
ANSWER_S_MIN = 1.0
ATTEMPTS = 4
ACKS = MappingProxyType({"0": 0, "1": 1, "all": -1})


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
    "--key-separator", "-k", metavar="TEXT", help=r"What separates key and value; \t is a tab."
)
@click.option("--key", metavar="TEXT", help="The key for records that have none.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header for input records without any headers of their own; may be repeated.",
)
@click.option(
    "--partition", "-p", type=click.IntRange(0), metavar="N", help="The partition to send to."
)
@click.option(
    "--timestamp", type=click.IntRange(0), metavar="MS", help="Timestamp: milliseconds since 1970."
)
@click.option("--null", metavar="TEXT", help="Send a null value for lines with this value.")
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
    help="Which replicas must acknowledge: none, the leader, or a majority.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing if all went well.")
@client_options
def produce(
    topic: str,
    file: BinaryIO,
    quiet: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Send records to TOPIC from FILE or standard input.

    Each line is a record. The exit code is 0 only if the broker has acknowledged all of them.
    """
    reading = _reading(file, options)
    with _producer(topic, bootstrap, timeout_s, options) as producer:
        _send_all(file, reading, producer)
    if as_json:
        report = {"topic": topic, "created": producer.is_new, "produced": producer.delivered}
        print_json(report)
    elif not quiet:
        if producer.is_new:
            size = counted(producer.partition_count, "partition")
            click.echo(f"Topic {topic} did not exist: created with {size}.", err=True)
        click.echo(f"{counted(producer.delivered, 'record')} produced to topic {topic}.", err=True)


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


@contextmanager
def _producer(
    topic: str, bootstrap: str, timeout_s: float, options: dict[str, Any]
) -> "Iterator[RecordProducer]":
    from penstock.client.wire.cluster import WireCluster
    from penstock.client.wire.records import RecordProducer
    from penstock.client.wire.settings import WireSettings

    answer_s = max(timeout_s, ANSWER_S_MIN)
    settings = WireSettings(
        bootstrap=bootstrap,
        request_timeout_s=answer_s,
        retry_timeout_s=answer_s * ATTEMPTS,
        # What refuses the first connection of all will hardly have changed in a second.
        first_contact_timeout_s=0.0,
    )
    with (
        WireCluster(settings) as cluster,
        closing(
            RecordProducer(
                cluster,
                topic,
                acks=ACKS[options["acks"]],
                compression=options["compression"],
            )
        ) as producer,
    ):
        yield producer


def _send_all(file: BinaryIO, reading: Reading, producer: "RecordProducer") -> None:
    with (
        Interrupts() as interrupts,
        progress("Producing (bytes)", _size(file), shown=not file.isatty()) as advance,
    ):
        try:
            for record in interrupts.waiting_for(reading.records(file)):
                _send(record, producer)
                advance(record.input_bytes)
        except DeliveryFailed:
            raise
        except (Explained, Interrupted):
            # What was read before the bad line, or before Ctrl-C, still counts.
            producer.flush()
            raise
        producer.flush()


def _send(record: NewRecord, producer: "RecordProducer") -> None:
    producer.send(
        record.value,
        key=record.key,
        headers=record.headers,
        partition=_partition(record, producer),
        timestamp_ms=record.timestamp_ms,
    )


def _partition(record: NewRecord, producer: "RecordProducer") -> int | None:
    """A copy of another topic keeps its partitions. Where this one has fewer, several of them
    share one: the order within each stays, and so do the keys that are together."""
    if record.partition is None or record.topic in (None, producer.topic):
        return record.partition
    return record.partition % producer.partition_count


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
    try:
        name.encode()
    except UnicodeEncodeError:
        # The shell passes any bytes.
        raise click.UsageError(f"The name of header {pair!r} is not UTF-8") from None
    return name, os.fsencode(value)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)
