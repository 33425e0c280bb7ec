"""`penstock consume`: prints the records of a topic."""

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from penstock.cli.consume_output import Writing
from penstock.cli.failures import CommandFailed
from penstock.cli.formats import BadFormat, Format
from penstock.cli.interrupts import Interrupts
from penstock.cli.options import client_options, key_format_option
from penstock.cli.progress import Advance, progress
from penstock.cli.template import Template, parse_template
from penstock.cli.values import PositionType
from penstock.client.positions import POSITION_HELP
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.consumer import ConsumedRecord, Consumer

# A read that has an end, and a join of a group, must get on within this time.
STALL_S_MAX = 30.0
# A reader that only wants what is there learns of a partition's end by a fetch that comes back
# empty, and the broker holds that back for this long; librdkafka's default is half a second.
END_WAIT_MS = 10


class WrittenType(click.ParamType[object]):
    """One of the formats of a value, or a template for all of a record."""

    name = "TEMPLATE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        if value in list(Format):
            return Format(value)
        if "%" not in value:
            self.fail(
                f"{value!r} is neither {', '.join(Format)} nor a template with %s", param, ctx
            )
        try:
            return parse_template(value)
        except BadFormat as problem:
            self.fail(f"{value!r} can't be used: {problem}", param, ctx)


@click.command()
@click.argument("topic")
@click.option("--follow", "-F", is_flag=True, help="Wait for more records at the end.")
@click.option(
    "--from",
    "-o",
    "start",
    type=PositionType(),
    default="beginning",
    show_default=True,
    help=f"Where to start: {POSITION_HELP}.",
)
@click.option(
    "--until",
    type=PositionType(),
    help="Where to stop, in the same form; by default the current end, unless --follow.",
)
@click.option(
    "--max",
    "-n",
    "count_max",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N records.",
)
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --follow, stop when nothing arrives for this long.",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only this partition; may be repeated.",
)
@click.option(
    "--group",
    "-g",
    metavar="NAME",
    help="Read as a member of this group, starting at its committed offsets, and commit.",
)
@click.option(
    "--format",
    "-f",
    "form",
    type=WrittenType(),
    metavar=f"[{'|'.join(Format)}|TEMPLATE]",
    default=Format.TEXT.value,
    show_default=True,
    help="How to print values, or a template for whole records, as in '%k %s\\n'.",
)
@key_format_option
@click.option(
    "--key-separator",
    "-k",
    metavar="TEXT",
    help=r"Print the key, then this, then the value; \t is a tab.",
)
@click.option("--details", is_flag=True, help="Also print partition, offset, time and headers.")
@click.option("--null", metavar="TEXT", default="", help="What to print for a null value or key.")
@client_options
def consume(topic: str, bootstrap: str, timeout_s: float, as_json: bool, **options: Any) -> None:
    """Print the records of TOPIC.

    Without options, this prints everything that is there now, from the beginning to the end. With
    --json, each record is a line of JSON that `penstock produce --input json` can read.
    """
    _check_options(options, as_json)
    from penstock.client.admin import Admin

    admin = Admin(bootstrap, timeout_s=timeout_s)
    partitions = _partitions(admin, topic, options["partitions"])
    writing = _writing(options, as_json)
    if options["group"] is not None:
        _read_as_member(bootstrap, topic, writing, options)
    else:
        _read_partitions(admin, partitions, writing, options)


@dataclass(kw_only=True)
class Reading:
    """One run of `consume`: what is still to read, and what was written."""

    consumer: "Consumer"
    writing: Writing
    sink: BinaryIO
    advance: Advance
    interrupts: Interrupts
    # The offset to stop at, by partition that is not finished; None without an end.
    stops: dict[TopicPartition, int] | None
    count_max: int | None
    idle_s: float | None
    follow: bool
    count: int = 0

    def run(self) -> None:
        last_arrival = time.monotonic()
        while not self._is_finished():
            self.interrupts.check()
            records = self.consumer.poll()
            if records:
                last_arrival = time.monotonic()
                self._write(records)
            elif self._is_idle(time.monotonic() - last_arrival):
                return

    def _write(self, records: "list[ConsumedRecord]") -> None:
        wanted = [record for record in records if self._is_wanted(record)]
        if self.count_max is not None:
            wanted = wanted[: self.count_max - self.count]
        for record in wanted:
            self.writing.write(record, self.sink)
        # Flushed before it is done: what the reader never got must not count as processed.
        self.sink.flush()
        self.consumer.done(wanted)
        self.count += len(wanted)
        self.advance(len(wanted))

    def _is_wanted(self, record: "ConsumedRecord") -> bool:
        if self.stops is None:
            return True
        partition = _key(record.topic, record.partition)
        stop = self.stops.get(partition)
        if stop is not None and record.offset + 1 >= stop:
            del self.stops[partition]
        return stop is not None and record.offset < stop

    def _is_finished(self) -> bool:
        if self.count_max is not None and self.count >= self.count_max:
            return True
        if self.follow:
            return False
        consumer = self.consumer
        if self.stops is None:
            return consumer.assignments > 0 and consumer.assigned <= consumer.ended.keys()
        # A partition's last offsets may hold no record, after compaction for one.
        for partition, end in consumer.ended.items():
            if end >= self.stops.get(partition, end + 1):
                del self.stops[partition]
        return not self.stops

    def _is_idle(self, waited_s: float) -> bool:
        if self.follow:
            return self.idle_s is not None and waited_s >= self.idle_s
        if waited_s < STALL_S_MAX:
            return False
        because = self.consumer.unreachable_because or "the broker sends no records"
        raise CommandFailed(f"Nothing arrived for {STALL_S_MAX:g} s: {because}.")


def _read_partitions(
    admin: "Admin", partitions: list[TopicPartition], writing: Writing, options: dict[str, Any]
) -> None:
    from penstock.client.consumer import Consumer
    from penstock.client.positions import End

    starts = admin.offsets.resolve(options["start"], partitions)
    stops = None
    if not options["follow"]:
        ends = admin.offsets.resolve(options["until"] or End(), partitions)
        stops = {one: ends[one] for one in partitions if starts[one] < ends[one]}
        starts = {one: starts[one] for one in stops}
    total = None if stops is None else sum(stops[one] - starts[one] for one in stops)
    if total == 0:
        return
    with (
        _bar(total) as advance,
        Interrupts() as interrupts,
        Consumer(bootstrap=admin.bootstrap) as consumer,
    ):
        consumer.assign(starts)
        _reading(consumer, writing, advance, interrupts, stops, options).run()


def _read_as_member(bootstrap: str, topic: str, writing: Writing, options: dict[str, Any]) -> None:
    from penstock.client.consumer import Consumer
    from penstock.client.positions import End

    start: Literal["earliest", "latest"] = (
        "latest" if isinstance(options["start"], End) else "earliest"
    )
    with (
        _bar(None) as advance,
        Interrupts() as interrupts,
        Consumer(
            topic,
            bootstrap=bootstrap,
            group=options["group"],
            start=start,
            options={} if options["follow"] else {"fetch.wait.max.ms": END_WAIT_MS},
        ) as consumer,
    ):
        _reading(consumer, writing, advance, interrupts, None, options).run()


def _reading(
    consumer: "Consumer",
    writing: Writing,
    advance: Advance,
    interrupts: Interrupts,
    stops: dict[TopicPartition, int] | None,
    options: dict[str, Any],
) -> Reading:
    return Reading(
        consumer=consumer,
        writing=writing,
        sink=sys.stdout.buffer,
        advance=advance,
        interrupts=interrupts,
        stops=stops,
        count_max=options["count_max"],
        idle_s=options["idle_s"],
        follow=options["follow"],
    )


def _bar(total: int | None) -> Any:
    """Only while records go to a file: on the screen they show the progress themselves."""
    return progress(
        "Consuming (records)", total, shown=not sys.stdout.isatty() and total is not None
    )


def _check_options(options: dict[str, Any], as_json: bool) -> None:
    from penstock.client.positions import Beginning, End

    if options["follow"] and options["until"] is not None:
        raise click.UsageError("--follow and --until can't be combined")
    if isinstance(options["form"], Template) and (
        as_json or options["details"] or options["key_separator"] is not None
    ):
        raise click.UsageError(
            "A template says what to print: leave out --json, --details and --key-separator"
        )
    if options["idle_s"] is not None and not options["follow"]:
        raise click.UsageError("--idle needs --follow")
    if options["group"] is None:
        return
    if not options["group"]:
        raise click.UsageError("The group's name must not be empty")
    if options["partitions"] or options["until"] is not None:
        raise click.UsageError(
            "--group assigns the partitions itself: leave out --partition and --until"
        )
    if not isinstance(options["start"], Beginning | End):
        raise click.UsageError(
            "--group starts where it left off, so --from can only be beginning or end"
        )


def _writing(options: dict[str, Any], as_json: bool) -> Writing:
    separator = options["key_separator"]
    form = options["form"]
    return Writing(
        as_json=as_json,
        value_format=form if isinstance(form, Format) else Format.TEXT,
        template=form if isinstance(form, Template) else None,
        key_format=Format(options["key_format"]),
        key_separator=None if separator is None else os.fsencode(separator.replace("\\t", "\t")),
        details=options["details"],
        null=os.fsencode(options["null"]),
    )


def _partitions(admin: "Admin", topic: str, chosen: tuple[int, ...]) -> list[TopicPartition]:
    there = admin.topics.partitions(topic)
    for number in chosen:
        if number not in there:
            raise CommandFailed(f"Topic {topic} has no partition {number}.")
    return [_key(topic, number) for number in chosen or there]


def _key(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
