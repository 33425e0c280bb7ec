"""Queues (share groups, KIP-932): how fast records are published, taken and acked, what that costs
the broker, records that wait for their time, and how soon a waiting consumer hears of a new one.

The same light clients drive every broker, one broker after the other. Kafka is also driven by its
own Java client, and RabbitMQ by its load generator (`rabbitmq.py`).
"""

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.e2e.clients.java import install, missing

from benchmarks import rabbitmq
from benchmarks.figures import Figure, Note, median
from benchmarks.latency import percentile
from benchmarks.modes import Mode
from benchmarks.probe import rss_megabytes
from benchmarks.queue_process import (
    BATCH,
    BATCHES,
    SIZE,
    Taker,
    Team,
    batches_of,
    publish,
    publisher,
)
from benchmarks.sides import DURABLE, KAFKA, KAFKA_JVM, UNSYNCED, WITHOUT_SYNC, Side, kafka_nodes
from penstock.client.child_broker import ChildBroker
from penstock.protocol.kafka.messages.share_fetch import ShareFetchResponse
from penstock.records.batch import decode_records, parse_header
from penstock.records.record import Headers

PARTITIONS, CONSUMERS = 6, 4
TIMEOUT_S = 300.0
JAVA_CLIENT = "org.apache.kafka.tools.ShareConsumerPerformance"
# What Kafka needs to keep the state of queues on one node.
OF_KAFKA = {
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
}
# Of all topics, also of that with the state of queues.
SYNCED = {"log_flush_interval_messages": "1"}
KAFKA_SYNCED = f"{KAFKA} with sync"
PLAIN_US_MAX, LOOKING_US_MAX = 2.0, 10.0
DELAYED_MB_MAX, LATE_MS_MAX = 100.0, 200.0
HEARD_MS_MEDIAN, HEARD_MS_MAX = 5.0, 20.0
# From when on the delayed records are due, after all of them were published.
DUE_IN_S = 15.0
EMPTY_FETCHES = 4
RABBITMQ_S = 20
RABBITMQ_TIMES_MIN = 3.0


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    rates: dict[str, float] = {}
    with ChildBroker(folder / "penstock") as broker:
        ours = Side(name=DURABLE, bootstrap=broker.bootstrap, pids=(broker.pid,))
        for side in (ours, replace(ours, name=UNSYNCED, topic_settings=WITHOUT_SYNC)):
            rates[side.name] = median([through(mode, side) for _ in range(mode.queue_rounds)])
        yield from costs(mode, ours)
        yield from waiting(mode, ours)
        yield from hearing(mode, ours)
    rates |= of_kafka(mode, folder)
    rates |= of_rabbitmq(mode, folder)
    yield from compared(rates)
    yield note(mode)


def through(mode: Mode, side: Side) -> float:
    """Messages a second, from the first that is published until the last is acked."""
    with queue(side, "through") as (topic, group):
        batches = batches_of(BATCHES, has_keys=False)
        team = Team(side.bootstrap, group, topic, CONSUMERS)
        sending = publisher(side.bootstrap, topic, PARTITIONS, batches, mode.queue_messages)
        try:
            sending.start()
            started = time.perf_counter()
            team.begin()
            team.until(mode.queue_messages, TIMEOUT_S)
            seconds = time.perf_counter() - started
        finally:
            team.close()
            sending.join(TIMEOUT_S)
    return mode.queue_messages / seconds


@contextmanager
def queue(side: Side, name: str, **settings: str) -> Iterator[tuple[str, str]]:
    """A topic and a group that starts with its first record."""
    topic = side.create(name, PARTITIONS)
    group = f"{topic}-{time.time_ns()}"
    configs = {"share.auto.offset.reset": "earliest", **settings}
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(TIMEOUT_S)
    try:
        yield topic, group
    finally:
        side.delete(name)


# What the broker pays


def costs(mode: Mode, side: Side) -> Iterator[Figure]:
    name = "taking and acking from a backlog"
    plain = median([cost(mode, side, {}) for _ in range(mode.queue_rounds)])
    yield figure(name, "broker CPU, plain", plain, "us/message", at_most=PLAIN_US_MAX)
    looking = {
        "penstock.queue.delay.enable": "true",
        "penstock.queue.key.order.enable": "true",
    }
    both = median([cost(mode, side, looking) for _ in range(mode.queue_rounds)])
    yield figure(
        name, "broker CPU, with delays and order", both, "us/message", at_most=LOOKING_US_MAX
    )


def cost(
    mode: Mode, side: Side, settings: Mapping[str, str], headers: Headers | None = None
) -> float:
    """Broker CPU microseconds per message; those that are looked into have a key and a header."""
    count = mode.queue_messages
    with queue(side, "cost", **settings) as (topic, group):
        if headers is None:
            headers = (("penstock.deliver.after", b"1"),) if settings else ()
        batches = batches_of(BATCHES, has_keys=bool(settings), headers_of=lambda _: headers)
        publish(side.bootstrap, topic, PARTITIONS, batches, count)
        team = Team(side.bootstrap, group, topic, CONSUMERS)
        try:
            before = side.cpu_seconds()
            team.begin()
            team.until(count, TIMEOUT_S)
            return 1e6 * (side.cpu_seconds() - before) / count
        finally:
            team.close()


# Records that wait for their time


class Pending(NamedTuple):
    # In MB.
    memory: float
    # In ms, of each record.
    lateness: Sequence[float]


def waiting(mode: Mode, side: Side) -> Iterator[Figure]:
    found = pending(mode, side)
    name = f"{mode.queue_delayed:,} delayed messages"
    yield figure(name, "memory", found.memory, "MB", at_most=DELAYED_MB_MAX)
    late = percentile(found.lateness, 0.99)
    yield figure(name, "after their time, p99", late, "ms", at_most=LATE_MS_MAX)
    yield figure(name, "after their time, median", median(found.lateness), "ms")


def pending(mode: Mode, side: Side) -> Pending:
    """Each has a time of its own, by chance: no two neighbours are due together."""
    chance, window_ms = Random(1), int(mode.queue_due_seconds * 1000)
    with queue(side, "later", **{"penstock.queue.delay.enable": "true"}) as (topic, group):
        base_ms = time.time_ns() // 1_000_000 + int(1000 * (DUE_IN_S + mode.queue_delayed / 10_000))

        def headers_of(_: int) -> Headers:
            return (("penstock.deliver.at", b"%d" % (base_ms + chance.randrange(window_ms))),)

        batches = batches_of(mode.queue_delayed // BATCH, has_keys=False, headers_of=headers_of)
        publish(side.bootstrap, topic, PARTITIONS, batches, mode.queue_delayed)
        takers = [TimingTaker(side.bootstrap, group, topic) for _ in range(CONSUMERS)]
        for taker in takers:
            taker.join()
        (pid,) = side.pids
        before = rss_megabytes(pid)
        empty = 0
        while empty < EMPTY_FETCHES and time.time_ns() // 1_000_000 < base_ms - 1_000:
            found = [taker.fetch() for taker in takers]
            empty = 0 if any(found) else empty + 1
        assert not any(taker.lateness for taker in takers), "some came before their time"
        memory = rss_megabytes(pid) - before
        lateness = take_all(takers, mode.queue_delayed)
    assert min(lateness) >= 0, "some came before their time"
    return Pending(memory, lateness)


def take_all(takers: Sequence["TimingTaker"], count: int) -> list[float]:
    """How late each of so many records was."""
    limit = time.monotonic() + TIMEOUT_S

    def work(taker: TimingTaker) -> None:
        while sum(len(each.lateness) for each in takers) < count and time.monotonic() < limit:
            taker.fetch()
        taker.close()

    threads = [threading.Thread(target=work, args=(taker,)) for taker in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lateness = [late for taker in takers for late in taker.lateness]
    assert len(lateness) == count, f"only {len(lateness)} of {count} came"
    return lateness


class TimingTaker(Taker):
    """Looks at when each record was due."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(bootstrap, group, topic)
        self.lateness: list[float] = []

    def received(self, answer: ShareFetchResponse) -> None:
        now_ms = time.time_ns() / 1e6
        for topic in answer.responses:
            for part in topic.partitions:
                data = bytes(part.records or b"")  # type: ignore[arg-type]
                leased = {
                    offset
                    for one in part.acquired_records
                    for offset in range(one.first_offset, one.last_offset + 1)
                }
                while data:
                    for record in decode_records(data):
                        if record.offset in leased:
                            due_ms = int(record.headers[0][1] or b"0")
                            self.lateness.append(now_ms - due_ms)
                    data = data[parse_header(data).size :]


# A consumer that waits


def hearing(mode: Mode, side: Side) -> Iterator[Figure]:
    waits = heard(mode, side)
    name = "a poll on an empty queue"
    yield figure(name, "after an arrival, median", median(waits), "ms", at_most=HEARD_MS_MEDIAN)
    yield figure(name, "after an arrival, p99", percentile(waits, 0.99), "ms", at_most=HEARD_MS_MAX)


def heard(mode: Mode, side: Side) -> list[float]:
    """Milliseconds from when a message is safe until the consumer has it."""
    chance, waits = Random(1), []
    with queue(side, "heard") as (topic, group):
        taker = Taker(side.bootstrap, group, topic)
        taker.join()
        batches = batches_of(1, has_keys=False)
        for number in range(mode.queue_arrivals):
            while taker.fetch(0):
                pass
            got: list[float] = []

            def wait(got: list[float] = got) -> None:
                while not taker.fetch():
                    pass
                got.append(time.perf_counter())

            waiting_taker = threading.Thread(target=wait)
            waiting_taker.start()
            time.sleep(0.02 + 0.03 * chance.random())
            publish(side.bootstrap, topic, PARTITIONS, batches, 1)
            safe = time.perf_counter()
            waiting_taker.join()
            # The first ones open the queues.
            if number >= PARTITIONS or not mode.is_judged:
                waits.append(1000 * max(0.0, got[0] - safe))
        taker.close()
    return waits


# Kafka


def of_kafka(mode: Mode, folder: Path) -> dict[str, float]:
    """Nothing where it can't run."""
    rates: dict[str, float] = {}
    for name, more in ((KAFKA, {}), (KAFKA_SYNCED, SYNCED)):
        place = folder / name.replace(" ", "-")
        place.mkdir()
        with kafka_nodes(place, 1, **OF_KAFKA, **more) as sides:
            for side in sides:
                named = replace(side, name=name)
                # A JVM needs load before it is fair to compare.
                through(mode, named)
                found = [through(mode, named) for _ in range(mode.queue_rounds)]
                rates[name] = median(found)
                rates[f"{name}, Java client"] = by_java_client(mode, named)
    return rates


def by_java_client(mode: Mode, side: Side) -> float:
    """From a backlog, so that nobody waits for the producer."""
    count = mode.queue_messages
    with queue(side, "java") as (topic, group):
        publish(side.bootstrap, topic, PARTITIONS, batches_of(BATCHES, has_keys=False), count)
        command = ["java", *KAFKA_JVM, "-cp", install(), JAVA_CLIENT]
        options = ["--bootstrap-server", side.bootstrap, "--topic", topic, "--group", group]
        options += ["--num-records", str(count), "--threads", str(CONSUMERS)]
        options += ["--timeout", "60000"]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    found = re.findall(r"^\S+ \S+, \S+ \S+, [\d.]+, [\d.]+, ([\d.]+), ", done.stdout, re.MULTILINE)
    assert found, f"Kafka's client said {done.stdout[-500:]} {done.stderr[-500:]}"
    return float(found[-1])


def of_rabbitmq(mode: Mode, folder: Path) -> dict[str, float]:
    """Nothing where it can't run."""
    if rabbitmq.missing():
        return {}
    with rabbitmq.rabbitmq(folder / "rabbitmq") as address:
        found = [
            rabbitmq.rate(
                address,
                queues=queues,
                consumers=CONSUMERS,
                size=SIZE,
                batch=BATCH,
                seconds=RABBITMQ_S if mode.is_judged else 1,
            )
            for queues in (1, PARTITIONS)
        ]
    return {rabbitmq.RABBITMQ: max(found)}


def compared(rates: Mapping[str, float]) -> Iterator[Figure]:
    name = "publish, poll and ack, 4 consumers, 6 partitions"
    for contender, rate in rates.items():
        yield figure(name, contender, rate, "messages/s")
    if KAFKA_SYNCED in rates:
        yield figure(
            name,
            "durable / Apache Kafka with sync",
            rates[DURABLE] / rates[KAFKA_SYNCED],
            "",
            at_least=1.0,
        )
    if rabbitmq.RABBITMQ in rates:
        yield figure(
            name,
            f"durable / {rabbitmq.RABBITMQ}",
            rates[DURABLE] / rates[rabbitmq.RABBITMQ],
            "",
            at_least=RABBITMQ_TIMES_MIN,
        )


def figure(
    workload: str,
    name: str,
    value: float,
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    return Figure(
        workload=f"queues: {workload}",
        name=name,
        value=value,
        unit=unit,
        at_most=at_most,
        at_least=at_least,
    )


def note(mode: Mode) -> Note:
    clients = (
        f"{mode.queue_messages:,} messages of {SIZE} B in batches of {BATCH}; the same light "
        "clients drive one broker after the other, and ack what they got with the next fetch. "
    )
    kafka = "Kafka's Java client takes from a backlog. "
    if missing():
        kafka = f"Kafka was not measured: {', '.join(missing())} can't be found. "
    rabbit = "RabbitMQ's perf-test publishes, takes and acks at the same time. "
    if rabbitmq.missing():
        rabbit = f"RabbitMQ was not measured: {', '.join(rabbitmq.missing())} can't be found. "
    return Note(topic="queues", text=clients + kafka + rabbit)
