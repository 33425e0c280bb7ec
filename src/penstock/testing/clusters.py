"""A cluster of real processes on this machine, whose nodes and network a test may break."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from penstock.client.admin import Admin
from penstock.client.child_broker import ChildBroker
from penstock.client.cluster import ClusterClient, PartitionView
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.free_ports import HeldPorts
from penstock.client.kafka_connection import KafkaConnection
from penstock.model.endpoint import LOOPBACK, Endpoint
from penstock.testing.proxies import Direction, Proxies

NODES_MAX = 9
START_TIMEOUT_S = 60.0
IN_SYNC_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 15.0
POLL_S = 0.1
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ClusterNode:
    """One node: a process of its own, which can be killed, paused and started again."""

    def __init__(self, number: int, child: ChildBroker, proxies: Proxies) -> None:
        self.number = number
        self.bootstrap = ""
        self.is_running = False
        self._child = child
        self._proxies = proxies

    @property
    def data_dir(self) -> Path:
        return self._child.data_dir

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def grpc(self) -> str:
        """The address of its gRPC door."""
        return self._child.grpc

    @property
    def http(self) -> str:
        """The address of its HTTP door."""
        return self._child.http

    @property
    def log(self) -> str:
        """The last lines that the node logged."""
        return self._child.log

    def start(self) -> None:
        """Start again after `stop` or `kill`, with the same ports and data."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start without waiting until the node is ready."""
        self._proxies.open(self.number)
        self._child.launch()
        self.is_running = True

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether its start came to an end, good or bad, in that time."""
        return self._child.wait_ready(timeout_s)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        try:
            self.bootstrap = self._child.await_ready(timeout_s)
        except ClientError:
            self.is_running = False
            self._proxies.refuse(self.number)
            raise

    def stop(self) -> None:
        """Shut down cleanly; the node hands its leaderships over first."""
        if self.is_running:
            self._child.stop()
            self._ended()

    def kill(self) -> None:
        """End at once, as `kill -9` would."""
        # Before the process dies: anyone who dials it then must be refused, as without a proxy.
        self._proxies.refuse(self.number)
        self._child.kill()
        self._ended()

    def restart(self) -> None:
        """Stop, unless it is down already, and start with the same ports and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let the process stand still until `resume`; its connections stay open."""
        self._child.pause()

    def resume(self) -> None:
        self._child.resume()

    def erase(self) -> None:
        """Delete the data of a node that is down, as a new disk would."""
        if self.is_running:
            raise ClientError(
                f"Node {self.number} is running: stop or kill it before you delete its data."
            )
        shutil.rmtree(self.data_dir)

    def _ended(self) -> None:
        self.is_running = False
        self._proxies.refuse(self.number)


class ProcessCluster:
    """Nodes 1, 2, ... on loopback; `with` starts and ends them."""

    def __init__(
        self, directory: Path, *, nodes: int = 3, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ClientError(f"A test cluster can have 1 to {NODES_MAX} nodes, not {nodes}.")
        self.nodes: dict[int, ClusterNode] = {}
        self._directory = directory
        self._settings = dict(settings)
        self._ends = ExitStack()
        self._proxies = Proxies()
        # Where each node really listens, and where nodes that joined later reach it.
        self._listening: dict[int, Endpoint] = {}
        self._shared: dict[int, Endpoint] = {}
        self._founders = range(1, nodes + 1)
        self._ports = HeldPorts(LOOPBACK)

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        self._ends.enter_context(self._ports)
        self._ends.enter_context(self._proxies)
        self._ends.callback(self._stop_all)
        try:
            self._start_founders()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.close()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] = _NO_SETTINGS,
    ) -> str:
        """Create a topic, ready for use on return; returns its name."""
        admin = Admin(self._live_bootstrap(), timeout_s=ANSWER_TIMEOUT_S)
        admin.topics.create(
            name, partitions=partitions, replicas=replication_factor, settings=settings
        )
        return name

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """The node that leads a partition; waits until there is one."""
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
        while time.monotonic() < deadline:
            for one in self._partitions() or ():
                if (one.place.topic, one.place.partition) == (topic, partition) and (
                    one.leader in self.nodes and self.nodes[one.leader].is_running
                ):
                    return self.nodes[one.leader]
            time.sleep(POLL_S)
        raise ClientError(f"{topic}-{partition} has no leader.")

    def await_in_sync(self, timeout_s: float = IN_SYNC_TIMEOUT_S) -> None:
        """Wait until every partition has a leader and all its copies."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._partitions()
            late = [one for one in found or () if one.leader < 0 or one.is_under_replicated]
            if found is not None and not late:
                return
            if time.monotonic() > deadline:
                places = ", ".join(str(one.place) for one in late[:10])
                reason = "no node answers" if found is None else places
                raise ClientError(f"Not in sync after {timeout_s:g} s: {reason}.")
            time.sleep(POLL_S)

    def add_node(self) -> ClusterNode:
        """One more node, which joins the running cluster."""
        number = max(self.nodes) + 1
        if number > NODES_MAX:
            raise ClientError(f"A test cluster can have at most {NODES_MAX} nodes.")
        self._prepare_addresses([number])
        member = next(node for node in self.nodes.values() if node.is_running)
        flags = ("--advertise-peer", str(self._shared[number]))
        node = self._make_node(number, join=str(self._shared[member.number]), flags=flags)
        node.start()
        return node

    # The network

    def partition(self, *groups: Iterable[int]) -> None:
        """Cut the network between these groups of nodes; a node that is in none stands alone."""
        sides = [frozenset(group) for group in groups]
        named = [number for side in sides for number in side]
        self._check_numbers(named)
        if len(named) != len(set(named)):
            raise ClientError("A node can be in only one group.")
        sides += [frozenset({number}) for number in self.nodes if number not in named]
        self._check_joined_alone(sides)
        side_of = {number: side for side in sides for number in side}
        self._proxies.cut(
            (one, other)
            for one, other in permutations(self.nodes, 2)
            if side_of[one] is not side_of[other]
        )

    def cut(self, *directions: Direction) -> None:
        """Cut exactly these (sender, receiver) directions, and none but these."""
        self._check_numbers(number for direction in directions for number in direction)
        if any(number not in self._founders for one in directions for number in one):
            raise ClientError("Single directions can be cut only between the first nodes.")
        self._proxies.cut(directions)

    def heal(self) -> None:
        """Let every node reach every other again."""
        self._proxies.cut(())

    # Starting and ending

    def _start_founders(self) -> None:
        self._prepare_addresses(self._founders)
        links = self._dialled_by_founders()
        for number in self._founders:
            cluster = {number: str(self._shared[number])}
            cluster |= {other: str(links[number, other]) for other in self._others(number)}
            self._make_node(number, cluster=cluster)
        for node in self.nodes.values():
            node.launch()
        self._await_ready()

    def _await_ready(self) -> None:
        """They wait for each other, so one that can't start must not be the last to be asked."""
        deadline = time.monotonic() + START_TIMEOUT_S
        pending = list(self.nodes.values())
        while pending:
            for node in [one for one in pending if one.wait_ready(POLL_S)]:
                node.await_ready(0)
                pending.remove(node)
            if time.monotonic() > deadline:
                pending[0].await_ready(0)

    def _prepare_addresses(self, numbers: Sequence[int]) -> None:
        """Each gets its own address, and one for those that are not known beforehand."""
        ports = iter(self._ports.take(2 * len(numbers)))
        for number in numbers:
            self._listening[number] = Endpoint(LOOPBACK, next(ports))
            self._shared[number] = Endpoint(LOOPBACK, next(ports))
            is_founder = number in self._founders
            # Founders know each other by addresses of their own, so this one tells who dials.
            joined = [other for other in range(1, NODES_MAX + 1) if other not in self._founders]
            sources = joined if is_founder else [*self._founders, *joined]
            self._proxies.add(
                [one for one in sources if one != number],
                number,
                self._shared[number],
                self._listening[number],
            )

    def _dialled_by_founders(self) -> dict[Direction, Endpoint]:
        pairs = list(permutations(self._founders, 2))
        links = dict(zip(pairs, self._ports.take(len(pairs)), strict=True))
        endpoints = {pair: Endpoint(LOOPBACK, port) for pair, port in links.items()}
        for (source, target), endpoint in endpoints.items():
            self._proxies.add([source], target, endpoint, self._listening[target])
        return endpoints

    def _make_node(
        self,
        number: int,
        *,
        cluster: Mapping[int, str] | None = None,
        join: str | None = None,
        flags: Sequence[str] = (),
    ) -> ClusterNode:
        (port,) = self._ports.take(1)
        child = ChildBroker(
            self._directory / f"node-{number}",
            kafka=f"{LOOPBACK}:{port}",
            node=number,
            peer=str(self._listening[number]),
            cluster=cluster,
            join=join,
            settings=self._settings,
            flags=flags,
        )
        self.nodes[number] = ClusterNode(number, child, self._proxies)
        return self.nodes[number]

    def _stop_all(self) -> None:
        """Ends all at once; the data is thrown away, so nobody need hand anything over."""
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    # Looking

    def _others(self, number: int) -> list[int]:
        return [other for other in self._founders if other != number]

    def _partitions(self) -> list[PartitionView] | None:
        """None if nobody answers in time, which may be the machine's fault: ask again."""
        bootstrap = self._live_bootstrap()
        try:
            with KafkaConnection(bootstrap, timeout_s=ANSWER_TIMEOUT_S) as connection:
                return ClusterClient(connection).partitions()
        except BrokerUnreachable:
            return None

    def _live_bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values() if node.is_running)

    def _check_numbers(self, numbers: Iterable[int]) -> None:
        unknown = sorted({number for number in numbers if number not in self.nodes})
        if unknown:
            raise ClientError(f"There is no node {unknown[0]} in this cluster.")

    def _check_joined_alone(self, sides: Sequence[frozenset[int]]) -> None:
        """Connections to a node that joined go through one proxy, which can't tell who dials."""
        for side in sides:
            if len(side) > 1 and any(number not in self._founders for number in side):
                if len(side) == len(self.nodes):
                    continue
                raise ClientError("A node that joined later can only be cut off alone.")
