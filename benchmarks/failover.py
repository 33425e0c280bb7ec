"""From `kill -9` of a partition's leader to the next acknowledged write of the same client.

The client is a librdkafka producer with its default settings that writes all the time. Counted is
the first record that was handed to it after the kill and acknowledged, so what was under way at
that moment does not flatter the figure.

One client lives through all kills. Between two of them the killed node comes back, all replicas are
in sync, and CALM_S pass: librdkafka waits up to ten seconds before it connects again to a broker
that it connected to, or failed to, within the last ten. Under a kill every three seconds it knows
the new leader after a tenth of a second and does not dial it for eight, so that such a run would
measure the client's patience.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer
from tests.e2e.cluster_nodes import Cluster

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode

TOPIC = "failover"
WRITE_EVERY_S = 0.005
GIVE_UP_S = 120.0
# From one kill to the next at least.
CALM_S = 12.0


class Client:
    """Writes to partition 0 in a thread of its own and notes what is acknowledged when."""

    def __init__(self, bootstrap: str) -> None:
        # When each acknowledged record was handed over, and when it was acknowledged.
        self.acknowledged: list[tuple[float, float]] = []
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._write()
            self._producer.poll(WRITE_EVERY_S)
        self._producer.flush(GIVE_UP_S)

    def _write(self) -> None:
        now = time.perf_counter()

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self.acknowledged.append((now, time.perf_counter()))
            else:
                self.errors.append(str(error))

        try:
            self._producer.produce(TOPIC, b"v" * 100, partition=0, on_delivery=delivered)
        except BufferError:
            self._producer.poll(WRITE_EVERY_S)

    def first_after(self, moment: float) -> float:
        """When the first of the records handed over after a moment was acknowledged."""
        seen = 0
        while time.perf_counter() < moment + GIVE_UP_S:
            for since, at in self.acknowledged[seen:]:
                seen += 1
                if since >= moment:
                    return at
            time.sleep(0.001)
        raise TimeoutError(f"nothing was acknowledged for {GIVE_UP_S} s after a kill")

    def forget(self) -> None:
        """What was acknowledged so far matters no more."""
        self.acknowledged.clear()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(GIVE_UP_S)


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with Cluster(folder) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        client = Client(cluster.bootstrap)
        try:
            gaps = [kill_leader(cluster, client, mode) for _ in range(mode.kills)]
        finally:
            client.stop()
    yield figure("kills", len(gaps), "")
    yield figure("next acknowledged write, median", median(gaps), "s", at_most=1.0)
    yield figure("the same, 99th percentile", percentile(gaps, 0.99), "s", at_most=2.0)
    yield figure("the same, worst", max(gaps), "s")


def kill_leader(cluster: Cluster, client: Client, mode: Mode) -> float:
    cluster.wait_until_healthy(TOPIC)
    client.first_after(time.perf_counter())
    leader = cluster.leader(TOPIC)
    client.forget()
    killed = time.perf_counter()
    leader.kill()
    gap = client.first_after(killed) - killed
    assert not client.errors, client.errors[:3]
    leader.start()
    mode.settle(max(0.0, killed + CALM_S - time.perf_counter()))
    return gap


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of all values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "kill -9 of a leader"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
