"""The brokers that are measured side by side: Penstock, and Apache Kafka where it can run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.clients.java import missing
from tests.e2e.cluster_nodes import Cluster
from tests.waiting import wait_until

from benchmarks.figures import Note
from benchmarks.latency import Load, measure_latency
from benchmarks.modes import Mode
from benchmarks.probe import cpu_seconds
from benchmarks.throughput import run_client
from penstock.client.child_broker import ChildBroker

# As Kafka's own start script gives them.
KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
DURABLE, UNSYNCED, KAFKA = "durable", "without sync", "Apache Kafka"
# What acknowledges after the write and leaves the sync to the system, as Kafka does.
WITHOUT_SYNC = {"penstock.flush.policy": "os-unsafe"}
TOPIC_TIMEOUT_S = 120.0
WARM_PARTITIONS = 6
WARM_RATE = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to run a workload; two of them may share a broker."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    factor: int = 1

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids)

    def topic(self, name: str) -> str:
        """Sides that share a broker have topics of their own."""
        return f"{name}-{self.name.replace(' ', '-').lower()}"

    def create(self, name: str, partitions: int) -> str:
        """A new topic whose partitions have leaders when this returns; its full name."""
        topic = self.topic(name)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = NewTopic(topic, partitions, self.factor, config=dict(self.topic_settings))
        admin.create_topics([wanted], operation_timeout=TOPIC_TIMEOUT_S)[topic].result()

        def is_led() -> bool:
            found = admin.list_topics(topic, timeout=30).topics[topic].partitions
            return len(found) == partitions and all(one.leader >= 0 for one in found.values())

        wait_until(f"leaders of {topic}", is_led, TOPIC_TIMEOUT_S)
        return topic

    def delete(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.topic(name)])[self.topic(name)].result(TOPIC_TIMEOUT_S)


@contextmanager
def penstock_and_kafka(mode: Mode, folder: Path) -> Iterator[list[Side]]:
    """One node of each, warm: durable, without sync, and Kafka, unless that is missing."""
    with ChildBroker(folder / "penstock") as broker, kafka_nodes(folder, 1) as kafka:
        durable = Side(name=DURABLE, bootstrap=broker.bootstrap, pids=(broker.pid,))
        sides = [durable, replace(durable, name=UNSYNCED, topic_settings=WITHOUT_SYNC), *kafka]
        for side in sides:
            warm_up(side, mode)
        yield sides


@contextmanager
def penstock_and_kafka_of_three(mode: Mode, folder: Path) -> Iterator[list[Side]]:
    """Three nodes of each, all on this machine, and factor 3."""
    (folder / "penstock").mkdir()
    with Cluster(folder / "penstock") as cluster, kafka_nodes(folder, 3) as kafka:
        pids = tuple(node.pid for node in cluster.nodes.values())
        ours = Side(name=DURABLE, bootstrap=cluster.bootstrap, pids=pids, factor=3)
        for side in (ours, *kafka):
            warm_up(side, mode)
        yield [ours, *kafka]


@contextmanager
def kafka_nodes(folder: Path, nodes: int, **settings: str) -> Iterator[Sequence[Side]]:
    """Nothing where it can't run; settings are given with `_` for `.`."""
    if missing():
        yield ()
        return
    place = folder / "kafka"
    place.mkdir()
    with apache_kafka(place, nodes, jvm_flags=KAFKA_JVM, **settings) as bootstrap:
        pids = tuple(
            child.pid for child in psutil.Process().children() if _runs_in(child, str(place))
        )
        yield [Side(name=KAFKA, bootstrap=bootstrap, pids=pids, factor=nodes)]


def _runs_in(process: psutil.Process, place: str) -> bool:
    return any(place in argument for argument in process.cmdline())


def kafka_note(mode: Mode) -> Note:
    if missing():
        text = f"not measured, because {', '.join(missing())} can't be found here"
    else:
        text = (
            f"4.3.1 on the same machine, with the JVM settings of its own start script, after "
            f"{mode.warm_up_seconds:g} s of load; it acknowledges without waiting for a sync"
        )
    return Note(topic="Apache Kafka", text=text)


def warm_up(side: Side, mode: Mode) -> None:
    """A JVM needs a minute of load before it is fair to compare; ours gets the same."""
    name = side.create("warm-up", WARM_PARTITIONS)
    ends = time.monotonic() + mode.warm_up_seconds
    seconds = mode.warm_up_seconds / 4
    load = Load(partitions=WARM_PARTITIONS, rate=WARM_RATE, seconds=seconds, size=100)
    while True:
        for command in ("produce", "consume"):
            run_client(command, side.bootstrap, name, mode.warm_up_messages, 100)
        measure_latency(side.bootstrap, name, load)
        if time.monotonic() >= ends:
            break
    side.delete("warm-up")
