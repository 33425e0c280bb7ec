"""A broker of Apache Kafka itself, from the jars of its Java client, as a process on loopback."""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.e2e.clients.java import JVM_FLAGS, install
from tests.e2e.cluster_nodes import free_port, wait_until
from tests.e2e.processes import run_tool

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL = 4_000
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@contextmanager
def apache_kafka(folder: Path) -> Iterator[str]:
    """The bootstrap address of one node; it ends with the `with` block."""
    port = free_port()
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(port=port, controller=free_port(), folder=folder))
    java = ["java", *JVM_FLAGS, "-cp", install()]
    format_disk = ["kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4()), "-c"]
    run_tool([*java, *format_disk, str(settings)])
    log_path = folder / "kafka.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        bootstrap = f"127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None, log_path.read_text(errors="replace")[-LOG_TAIL:]
            return _has_brokers(bootstrap)

        wait_until("an answer of Apache Kafka", answers, START_TIMEOUT_S)
        yield bootstrap
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)


def _has_brokers(bootstrap: str) -> bool:
    # What it says while nobody listens is of no interest.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
