"""RabbitMQ's quorum queue, driven by its own load generator, for those who would take it instead.

The server is Debian's `rabbitmq-server`, which needs no service to be started: each measurement has
a node of its own on loopback. The generator is `com.rabbitmq:perf-test`, which Maven fetches.
Without them its figures are left out, and a note says so.

A quorum queue is a Raft group that syncs before it confirms. It has no partitions, so one queue for
all consumers is measured, and as many queues as we have partitions; the faster of both counts.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.clients.java import BUILD, copy_jars_to, make
from tests.e2e.clients.java import missing as missing_java

from benchmarks.door_peers import HOST, running
from penstock.client.free_ports import free_ports

RABBITMQ = "RabbitMQ quorum queue"
# Debian's own script would change the user; this one runs as whoever asks.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
POM = Path(__file__).with_name("rabbitmq_client.xml")
PERF_TEST = "com.rabbitmq.perf.PerfTest"
# For the JVM and the queue to be warm, which the generator leaves out of its average.
WARM_S = 3
TIMEOUT_S = 120.0


def missing() -> list[str]:
    """What has to be installed."""
    lacking = [] if SERVER.exists() and shutil.which("epmd") else ["rabbitmq-server"]
    return lacking + missing_java()


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """One node, without plugins; gives its address."""
    folder.mkdir(parents=True)
    port, between_nodes, names = free_ports(3, HOST)
    plugins = folder / "plugins"
    plugins.write_text("[].\n")
    environment = {
        # Where Erlang keeps its cookie.
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between_nodes),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {_erlang(HOST)}",
    }
    # Erlang would start its name service by itself, and leave it behind.
    with (
        running(["epmd", "-address", HOST, "-port", str(names)], names),
        running([str(SERVER)], port, environment),
    ):
        yield f"{HOST}:{port}"


def _erlang(host: str) -> str:
    return "{" + host.replace(".", ",") + "}"


def install() -> str:
    """Fetches the pinned generator; a class path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    jars = BUILD / "rabbitmq-client"
    make(jars, [POM], ["mvn", "-q", "-B", "-f", str(POM), *copy_jars_to(jars)])
    return f"{jars}/*"


def rate(
    address: str, *, queues: int, consumers: int, size: int, batch: int, seconds: int
) -> float:
    """Messages a second that were published, confirmed, taken and acked. Producers have no more
    unconfirmed than ours, and consumers ack as many at a time."""
    producers = 1
    options = ["--queue", "jobs"]
    if queues > 1:
        producers = consumers = queues
        options = ["--queue-pattern", "jobs-%d", "--queue-pattern-from", "1"]
        options += ["--queue-pattern-to", str(queues)]
    unconfirmed = max(1, 5 * batch // producers)
    options += ["--quorum-queue", "--size", str(size), "--confirm", str(unconfirmed)]
    options += ["--producers", str(producers), "--consumers", str(consumers)]
    options += ["--qos", str(2 * batch), "--multi-ack-every", str(batch)]
    options += ["--uri", f"amqp://guest:guest@{address}", "--time", str(WARM_S + seconds)]
    done = subprocess.run(
        ["java", "-cp", install(), PERF_TEST, *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return average(re.findall(r"received: (\d+) msg/s", done.stdout), done.stdout + done.stderr)


def average(seconds: Sequence[str], said: str) -> float:
    """Of all seconds but the first ones."""
    counted = [float(each) for each in seconds[WARM_S:]]
    assert counted, f"RabbitMQ's generator said {said[-1_000:]}"
    return sum(counted) / len(counted)
