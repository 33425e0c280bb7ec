"""Brokers of Apache Kafka itself, from the jars of its Java client, as processes on loopback."""

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.e2e.clients.java import JVM_FLAGS, install
from tests.e2e.cluster_nodes import free_port
from tests.e2e.processes import run_tool
from tests.waiting import wait_until

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL = 4_000
# A change of the cleaner's settings makes its buffer again while the old one is still there: two of
# the usual 128 MiB are more than the heap, and after that Kafka compacts nothing any more.
SETTINGS = """\
process.roles=broker,controller
node.id={node}
broker.rack=rack-{node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data-{node}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
"""


@contextmanager
def apache_kafka(
    folder: Path, nodes: int = 1, *, jvm_flags: Sequence[str] = JVM_FLAGS, **settings: str
) -> Iterator[str]:
    """The bootstrap addresses of some nodes, which end with the `with` block; settings are given
    with `_` for `.`. Node N stands in the rack `rack-N`."""
    more = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
    ports = {node: (free_port(), free_port()) for node in range(1, nodes + 1)}
    voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in ports.items())
    java = ["java", *jvm_flags, "-cp", install()]
    cluster_id, files = str(uuid.uuid4()), []
    for node, (port, controller) in ports.items():
        files.append(folder / f"server-{node}.properties")
        known = {"node": node, "port": port, "controller": controller, "voters": voters}
        files[-1].write_text(SETTINGS.format(folder=folder, **known) + more)
        format_disk = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"]
        run_tool([*java, *format_disk, str(files[-1])])
    bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in ports.values())
    with ExitStack() as running:
        started = [running.enter_context(_process(java, file)) for file in files]

        def answers() -> bool:
            for process, log in started:
                assert process.poll() is None, log.read_text(errors="replace")[-LOG_TAIL:]
            return _brokers(bootstrap) == nodes

        wait_until("an answer of Apache Kafka", answers, START_TIMEOUT_S)
        yield bootstrap


@contextmanager
def _process(java: list[str], settings: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log_path = settings.with_suffix(".log")
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process, log_path
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)


def _brokers(bootstrap: str) -> int:
    # What it says while nobody listens is of no interest.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return len(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return 0
