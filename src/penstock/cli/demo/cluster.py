"""The demonstration's own cluster: three brokers in processes of their own, one of which is killed.

A thread asks the cluster a few times a second who leads what, as any client could.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from penstock.cli.demo.events import ClusterSeen, Event, Failed
from penstock.cli.failures import CommandFailed
from penstock.client.child_broker import ChildBroker
from penstock.client.cluster import ClusterClient, PartitionView
from penstock.client.errors import BrokerUnreachable
from penstock.client.free_ports import HeldPorts
from penstock.client.kafka_connection import KafkaConnection

NODES = (1, 2, 3)
HOST = "127.0.0.1"
LOOK_EVERY_S = 0.25
ANSWER_TIMEOUT_S = 10.0


class NodeState(StrEnum):
    STARTING = "starting"
    UP = "up"
    KILLED = "killed"


class DemoCluster:
    """Starts without waiting, so that the screen can show it; ends all when its block ends."""

    def __init__(self, folder: Path, ports: HeldPorts) -> None:
        taken = ports.take(2 * len(NODES))
        kafka = dict(zip(NODES, taken, strict=False))
        peers = {node: f"{HOST}:{taken[len(NODES) + place]}" for place, node in enumerate(NODES)}
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in kafka.values())
        self.states = dict.fromkeys(NODES, NodeState.STARTING)
        self._children = {
            node: ChildBroker(
                folder / f"node-{node}",
                kafka=f"{HOST}:{kafka[node]}",
                node=node,
                peer=peers[node],
                cluster=peers,
            )
            for node in NODES
        }

    @property
    def is_up(self) -> bool:
        return all(state is NodeState.UP for state in self.states.values())

    def launch(self) -> None:
        for child in self._children.values():
            child.launch()

    def check(self) -> None:
        """Note who is ready; raises CommandFailed when a node has ended that nobody killed."""
        for node, child in self._children.items():
            if self.states[node] is NodeState.STARTING and child.wait_ready(0) and child.bootstrap:
                self.states[node] = NodeState.UP
            if self.states[node] is not NodeState.KILLED and child.exit_code is not None:
                raise CommandFailed(f"Node {node} ended by itself: {child.last_line}")

    def kill(self, node: int) -> None:
        """With SIGKILL: no farewell to its clients, and nothing is handed over."""
        self.states[node] = NodeState.KILLED
        self._children[node].kill()

    def restart(self, node: int) -> None:
        """With the same ports and data; returns before it is ready."""
        self._children[node].launch()
        self.states[node] = NodeState.STARTING

    def kill_all(self) -> None:
        """The data is thrown away, so that nobody needs to hand anything over."""
        for node, child in self._children.items():
            if self.states[node] is not NodeState.KILLED:
                child.kill()


@contextmanager
def cluster_at_work(folder: Path) -> Iterator[DemoCluster]:
    with HeldPorts(HOST) as ports:
        cluster = DemoCluster(folder, ports)
        cluster.launch()
        try:
            yield cluster
        finally:
            cluster.kill_all()


class _Watch(threading.Thread):
    def __init__(self, bootstrap: str, topic: str, events: "SimpleQueue[Event]") -> None:
        super().__init__(name="cluster", daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._events = events
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            with KafkaConnection(self._address, timeout_s=ANSWER_TIMEOUT_S) as connection:
                client = ClusterClient(connection)
                while not self._stopping.wait(LOOK_EVERY_S):
                    self._look(client)
        except Exception as error:
            self._events.put(Failed(error=error))

    def _look(self, client: ClusterClient) -> None:
        asked_s = time.monotonic()
        try:
            partitions = client.partitions()
        except BrokerUnreachable:
            # A machine that is busy, or the moment in which a node dies.
            return
        self._events.put(seen(partitions, self._topic, at_s=asked_s))


@contextmanager
def cluster_watched(bootstrap: str, topic: str, events: "SimpleQueue[Event]") -> Iterator[None]:
    watch = _Watch(bootstrap, topic, events)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def seen(partitions: list[PartitionView], topic: str, *, at_s: float) -> ClusterSeen:
    return ClusterSeen(
        leaders={one.place.partition: one.leader for one in partitions if one.place.topic == topic},
        under_replicated=sum(one.is_under_replicated for one in partitions),
        at_s=at_s,
    )
