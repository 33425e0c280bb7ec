"""A cluster of real processes for tests: started as an operator starts it, harmed as fate does."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.e2e.cluster_network import Network
from tests.e2e.ports import LOOPBACK
from tests.e2e.ports import free_port as free_port
from tests.e2e.processes import Broker, clean_environment, command
from tests.e2e.wire import Wire, frame
from tests.waiting import wait_until

KAFKA_PORT, PEER_PORT = 9092, 9095
METADATA_VERSION = 9
NOBODY = -1
HEALTHY_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0
LOG_TAIL = 4_000


class PartitionView(NamedTuple):
    """One partition as a node's Metadata answer shows it."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


class ClusterNode(Broker):
    """One member; it keeps its addresses and its directory over all its lives."""

    def __init__(
        self,
        number: int,
        folder: Path,
        *,
        kafka: tuple[str, int],
        peer: tuple[str, int],
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder / f"node-{number}")
        self.number = number
        self.host, self.port = kafka
        self.peer = f"{peer[0]}:{peer[1]}"
        self.prefix = tuple(prefix)
        self.environment = dict(environment or {})
        self.lives = 0

    def launch(self) -> None:
        """Start without waiting: the first members of a cluster are ready only together."""
        assert not self.is_running
        arguments = ["up", "--kafka", self.bootstrap, "--grpc", self.grpc, "--http", self.http]
        arguments += ["--data-dir", str(self.data_dir)]
        arguments += ["--node", str(self.number), "--peer", self.peer, "--stop-with-stdin"]
        self.lives += 1
        with self.stderr_path.open("a") as stderr:
            stderr.write(f"--- life {self.lives} at {time.strftime('%H:%M:%S')}\n")
            stderr.flush()
            self.process = subprocess.Popen(
                [*self.prefix, *command(*arguments, *self.flags)],
                # The pipe ends with the tests, however they end, and the node ends with the pipe.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=clean_environment(self.environment),
            )

    def start(self, *, environment: Mapping[str, str] | None = None) -> "ClusterNode":
        self.environment |= dict(environment or {})
        self.launch()
        self.await_ready()
        return self

    def await_ready(self) -> None:
        self._await_ready()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def stands_still(self) -> bool:
        """After `pause`: every thread has stopped, or will before it comes back from the kernel."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}
        return states <= {"T", "D"}

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        assert not self.is_running
        shutil.rmtree(self.data_dir)

    def _close_pipe(self) -> None:
        super()._close_pipe()
        assert self.process is not None
        if self.process.stdin is not None:
            self.process.stdin.close()

    def partitions(self, *topics: str) -> dict[tuple[str, int], PartitionView]:
        """What this node tells clients of some topics; those it does not know are left out."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return {
            (topic.name, partition.partition_index): PartitionView(
                partition.leader_id,
                frozenset(partition.replica_nodes),
                frozenset(partition.isr_nodes),
            )
            for topic in self.ask(ApiKey.METADATA, METADATA_VERSION, request).topics
            for partition in topic.partitions
        }

    def controller(self) -> int:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return int(self.ask(ApiKey.METADATA, METADATA_VERSION, request).controller_id)

    def ask(
        self, key: ApiKey, version: int, request: object, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Any:
        """One request on a connection of its own."""
        with Wire(self.connect(timeout_s)) as wire:
            wire.send(frame(key, version, request))
            return wire.receive(key, version)


class Cluster:
    """Members with numbers from 1; leaving the `with` block ends them and tells of a failure."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        network: Network | None = None,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.network = network
        self.environment = dict(environment or {})
        self.nodes: dict[int, ClusterNode] = {}
        for number in range(1, nodes + 1):
            self._make(number)
        chosen = [w for pair in (settings or {}).items() for w in ("--set", "=".join(pair))]
        listed = ",".join(f"{node.number}={node.peer}" for node in self.nodes.values())
        for node in self.nodes.values():
            node.flags = ("--cluster", listed, *chosen)

    def _make(self, number: int) -> ClusterNode:
        if self.network is None:
            kafka, peer = (LOOPBACK, free_port()), (LOOPBACK, free_port())
            prefix: Sequence[str] = ()
        else:
            address = self.network.address(number)
            kafka, peer = (address, KAFKA_PORT), (address, PEER_PORT)
            prefix = self.network.prefix(number)
        node = ClusterNode(
            number,
            self.folder,
            kafka=kafka,
            peer=peer,
            prefix=prefix,
            environment=self.environment,
        )
        self.nodes[number] = node
        return node

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            self._explain(error)
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._explain(error)
        self.close()

    def _explain(self, error: BaseException) -> None:
        for node in self.nodes.values():
            error.add_note(f"--- node {node.number} ({node.data_dir})\n{node.stderr()[-LOG_TAIL:]}")

    def start(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_running]
        for node in down:
            node.launch()
        for node in down:
            node.await_ready()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    def join(self, number: int) -> ClusterNode:
        """A further member, which knows one address of the cluster."""
        contact = self.running()[0].peer
        node = self._make(number)
        node.flags = ("--join", contact)
        return node.start()

    def freeze(self) -> None:
        for node in self.running():
            node.pause()

    def freeze_and_kill(self) -> None:
        """All at one moment, so that nobody elects a leader while the others end."""
        self.freeze()
        for node in self.running():
            node.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def create_topic(
        self, name: str, *, partitions: int = 3, factor: int = 3, **configs: str
    ) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, factor, config=settings)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([topic], operation_timeout=30)[name].result(timeout=60)
        return name

    def leader(self, topic: str, partition: int = 0, *, among: Iterable[int] = ()) -> ClusterNode:
        """Who leads, as the given nodes (or all that run) agree on."""
        asked = [self.nodes[number] for number in among] or self.running()
        found: set[int] = set()

        def agreed() -> bool:
            views = [node.partitions(topic).get((topic, partition)) for node in asked]
            found.clear()
            # One that did not hear of the topic yet knows no leader either.
            found.update(NOBODY if view is None else view.leader for view in views)
            return len(found) == 1 and found != {NOBODY}

        wait_until(f"agreement on the leader of {topic}-{partition}", agreed, HEALTHY_TIMEOUT_S)
        return self.nodes[found.pop()]

    def controller(self, *, among: Iterable[int] = ()) -> ClusterNode:
        """As the given nodes (or all that run) agree on."""
        asked = [self.nodes[number] for number in among] or self.running()
        found: set[int] = set()

        def agreed() -> bool:
            found.clear()
            found.update(node.controller() for node in asked)
            return len(found) == 1 and found != {NOBODY}

        wait_until("agreement on the controller", agreed, HEALTHY_TIMEOUT_S)
        return self.nodes[found.pop()]

    def wait_until_healthy(self, *topics: str, timeout_s: float = HEALTHY_TIMEOUT_S) -> float:
        """Until every running node says that all replicas are in sync and somebody leads."""
        sick: list[str] = []

        def healthy() -> bool:
            sick[:] = self._sick(topics)
            return not sick

        try:
            return wait_until("health", healthy, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sick[:6]}") from None

    def _sick(self, topics: Sequence[str]) -> list[str]:
        alive = {node.number for node in self.running()}
        found = []
        for node in self.running():
            views = node.partitions(*topics)
            found += [
                f"{node.number} does not know {topic}"
                for topic in topics
                if (topic, 0) not in views
            ]
            found += [
                f"{node.number} says {place}: {view}"
                for place, view in views.items()
                if view.leader not in alive or view.in_sync != view.replicas
            ]
        return found
