"""One broker: everything between the data directory, the other nodes and the Kafka door."""

import asyncio
import inspect
import logging
import resource
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.broker.attempt_traces import AttemptTraces
from penstock.broker.client_metrics import ClientMetrics
from penstock.broker.configs import Configs
from penstock.broker.fetch import Fetch
from penstock.broker.forwarding import Forwarding
from penstock.broker.groups import Groups
from penstock.broker.handover import hand_over
from penstock.broker.leaderships import Leaderships
from penstock.broker.locks import Locks
from penstock.broker.log_directories import LogDirectories
from penstock.broker.membership import Membership
from penstock.broker.offsets import Offsets
from penstock.broker.partitions import Partitions
from penstock.broker.produce import Produce
from penstock.broker.producers import Producers
from penstock.broker.queues import Queues
from penstock.broker.quorum import Quorum
from penstock.broker.rack_selector import RackAwareSelector
from penstock.broker.reassignments import Reassignments
from penstock.broker.schema_gate import SchemaGate, make_judge
from penstock.broker.services import Services
from penstock.broker.share_coordinators import ShareCoordinators
from penstock.broker.throttling import Throttling
from penstock.broker.topics import Topics
from penstock.broker.upkeep import Upkeep
from penstock.cluster.broker_settings import HTTP_LISTENER, RACK_AWARE_SELECTOR
from penstock.cluster.brokers import Broker
from penstock.cluster.changes import BrokersChanged, Change
from penstock.cluster.config_definitions import validate_static
from penstock.cluster.coordinator import Cluster
from penstock.cluster.formation import Formation
from penstock.cluster.records import ClusterRecord, ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.config import Settings
from penstock.frontdoor.kafka.door import KafkaDoor
from penstock.groups.records import GroupRecord, GroupRecordCodec
from penstock.groups.state import GroupsState
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused, StartRefused, StorageDamaged
from penstock.model.ids import BrokerId, ReplicaId
from penstock.model.limits import Limits
from penstock.model.peers import NO_CLUSTER, PEER_VERSION, PeerHello
from penstock.net.occasional_log import OccasionalLog
from penstock.observe.node_counters import LoopDelay, NodeCounters
from penstock.observe.tracing import SpanCounts, Spans, TracingUnavailable
from penstock.queues.records import QueueRecord, QueueRecordCodec
from penstock.queues.state import QueuesState
from penstock.replication.exchange import TICK_SECONDS, Exchange
from penstock.replication.feed import Feed
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.replication.write_side import WriteSide
from penstock.server.doors import DoorProcess, LazyDesk
from penstock.server.parts import BoundNetwork, NodeParts
from penstock.storage.address_book import read_addresses, write_addresses
from penstock.storage.data_directory import DataDirectory, new_cluster_id
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles

# Threads that wait for a sync cost nothing, and the kernel joins many syncs into one. With half as
# many, jobs of 2,000 busy partitions queue up; with twice as many, they get in each other's way.
DISK_THREADS = 8
# Those that make and open logs do little but wait for syncs, of which the kernel joins many. They
# are others than the above, so that clients need not wait for a topic of thousands of partitions.
MAKER_THREADS = 8
DRAIN_TIMEOUT_S = 10.0
OPEN_FILES_WANTED = 65_536
SNAPSHOT_FILE = "state.snapshot"
REGISTER_RETRY_S = 0.5
WELCOME_CHECK_S = 0.5
# What no waiting will fix.
_FINAL_REFUSALS = frozenset({Reason.INVALID_REQUEST, Reason.POLICY_VIOLATION})
# Kafka's names of the settings that bound this process.
_LIMIT_SETTINGS = {
    "socket.request.max.bytes": "frame_bytes_max",
    "connections.max.idle.ms": "connection_idle_ms_max",
    "max.connections": "connections_max",
    "fetch.max.bytes": "fetch_bytes_max",
    "max.incremental.fetch.session.cache.slots": "fetch_sessions_max",
    "group.share.max.share.sessions": "share_sessions_max",
}

logger = logging.getLogger(__name__)


class Node:
    """One broker: everything between the data directory, the other nodes and the Kafka door."""

    # Each is set by the step of `_start` that bears its name.
    _disk: Executor
    _background: Executor
    _network: BoundNetwork
    exchange: Exchange
    partitions: Partitions
    cluster: Cluster
    services: Services

    def __init__(self, settings: Settings, parts: NodeParts | None = None) -> None:
        self._settings = settings
        self._parts = parts or NodeParts()
        self._clock = self._parts.clock
        self._file_system = self._parts.file_system
        self.peer: Endpoint | None = None
        # Where the doors listen that are not Kafka's, by name.
        self.doors: dict[str, Endpoint] = {}
        # What was built so far, undone in reverse order by `stop` or by a start that fails.
        self._built = AsyncExitStack()
        # By the machine's own clock: threads look at it too, and nothing follows from it.
        self._counters = NodeCounters(time.monotonic) if settings.metrics else None

    async def start(self) -> Endpoint:
        """Opens the data directory, recovers, and listens; returns where clients connect.

        Raises StartRefused with one sentence when the operator must change something first.
        """
        try:
            services, limits = await self.start_services()
            door = KafkaDoor(services, limits, self._clock, counters=self._counters)
            self._on_stop(lambda: door.drain(DRAIN_TIMEOUT_S))
            bound = await door.bind(*self._settings.kafka)
            doors = await self._other_doors(services)
            await self.register(self._settings.advertised(bound))
            # Not before: a client that met a node without a cluster would remember it so.
            door.open()
            doors.open()
        except BaseException:
            await self._built.aclose()
            raise
        return bound

    async def _other_doors(self, services: Services) -> DoorProcess:
        """Takes the addresses of the doors that live in a process of their own."""
        settings = self._settings
        desk = LazyDesk(own=settings.node, services=services, peers=self.exchange)
        options = {
            "node": settings.node,
            "hosts": list(settings.http_hosts),
            "log_format": settings.log_format,
            "log_level": settings.log_level,
        }
        doors = DoorProcess(desk, options)
        self._on_stop(doors.close)
        for door, endpoint in settings.other_doors().items():
            self.doors[door] = await doors.bind(door, endpoint)
        if "http" in self.doors:
            services.configs.derive(HTTP_LISTENER, f"http://{self.doors['http']}")
        return doors

    async def stop(self) -> None:
        """Answers what is in flight, makes everything durable, and lets go of the directory."""
        await self._built.aclose()

    async def start_services(self) -> tuple[Services, Limits]:
        """Everything but the door and the place in the cluster's list of brokers."""
        settings = self._settings
        static = validate_static(settings.broker)
        limits = _limits(static)
        directory = DataDirectory.open(
            settings.data_dir, node=settings.node, file_system=self._file_system
        )
        self._on_stop(directory.close)
        self._directory = directory
        self._disk = self._executor("disk", DISK_THREADS)
        self._background = self._executor("background", 1)
        await self._meet(directory)
        store = self._store(directory, limits)
        self.exchange.on_tick(store.tick)
        if self._counters is not None:
            self.exchange.on_tick(LoopDelay(self._counters, TICK_SECONDS).tick)
        self.partitions = Partitions(store=store, exchange=self.exchange)
        self._on_stop(store.close)
        self._on_stop(self.partitions.close)
        self.cluster = await self._cluster(directory, static)
        throttling = Throttling(
            cluster=self.cluster, leaders=self.exchange.leaders, throttle=store.throttle
        )
        self.exchange.on_tick(throttling.tick)
        self.services = await self._services(directory, limits)
        return self.services, limits

    # The other nodes

    async def _meet(self, directory: DataDirectory) -> None:
        """Opens the door for other nodes and makes sure that this one belongs to a cluster."""
        settings, clock = self._settings, self._clock
        self._network = self._parts.make_network(settings.peer_secret, clock)
        self._on_stop(self._network.close)
        endpoint = settings.peer
        if settings.opens_peer_door():
            endpoint = self.peer = await self._network.bind(settings.peer)
        own = ReplicaId(settings.node, directory.directory_id)
        self.exchange = Exchange(own=own, network=self._network, log=OccasionalLog(clock))
        hello = PeerHello(
            PEER_VERSION,
            directory.cluster_id or NO_CLUSTER,
            own.node,
            own.directory,
            directory.incarnation,
            settings.advertised_peer(endpoint),
        )
        self._network.start(hello, self.exchange)
        self.exchange.start()
        self._on_stop(self.exchange.stop)
        formation = Formation(
            node=own.node,
            identity=directory,
            exchange=self.exchange,
            network=self._network,
            listed=settings.cluster,
            join=settings.join,
            new_cluster_id=new_cluster_id,
        )
        await self._unless_refused(formation.run())
        known = read_addresses(directory.peers_path, self._file_system)
        self._network.set_peers({**known, **settings.cluster})
        if settings.join is not None:
            self._network.meet([settings.join])

    async def _unless_refused(self, meeting: Coroutine[Any, Any, None]) -> None:
        """Waits for others as long as it takes, but not for those who refuse to talk."""
        task = asyncio.get_running_loop().create_task(meeting)
        try:
            while not (await asyncio.wait([task], timeout=WELCOME_CHECK_S))[0]:
                self._check_welcome()
            await task
        finally:
            task.cancel()

    def _check_welcome(self) -> None:
        if self._network.refusal is not None and not self.exchange.hellos:
            raise StartRefused(self._network.refusal)

    def _follow_brokers(self, change: Change) -> None:
        if isinstance(change, BrokersChanged):
            self._dial_brokers()

    def _dial_brokers(self) -> None:
        """Addresses from the flags win: they are what the operator says now."""
        stored = {node: broker.peer for node, broker in self.cluster.brokers.items()}
        if not stored:
            # Nothing is known to be committed yet; what was dialled at the start goes on.
            return
        self._network.set_peers({**stored, **self._settings.cluster})
        self._background.submit(self._note_addresses, stored)

    def _note_addresses(self, addresses: Mapping[BrokerId, Endpoint]) -> None:
        """In a worker thread."""
        try:
            write_addresses(self._directory.peers_path, addresses, self._file_system)
        except OSError as error:
            logger.warning("the addresses of other nodes were not stored: %s", error)

    async def register(self, kafka: Endpoint) -> None:
        """Returns once this node's copy of the metadata knows the node under this address; what it
        leads from then on is handed over first of all when it stops."""
        settings = self._settings
        self.cluster.advertised = kafka
        broker = Broker(
            id=settings.node,
            directory=self._directory.directory_id,
            kafka=kafka,
            peer=settings.advertised_peer(self.peer or settings.peer),
            rack=settings.rack,
        )
        while True:
            try:
                await self.cluster.register(broker)
                break
            except Refused as refused:
                if refused.reason in _FINAL_REFUSALS:
                    raise StartRefused(refused.detail) from None
                self._check_welcome()
                logger.info("not in the cluster yet: %s", refused.detail)
                await asyncio.sleep(REGISTER_RETRY_S)
        await self.services.topics.take_part()
        self.services.producers.prefetch()
        self._on_stop(self._hand_over)

    async def _hand_over(self) -> None:
        await self.services.queues.leave()
        replicas = self.partitions.all()
        if self.partitions.metadata is not None:
            replicas.append(self.partitions.metadata)
        await hand_over(replicas)

    # What this node holds

    def _store(self, directory: DataDirectory, limits: Limits) -> ReplicaStore:
        open_max = min(limits.open_segments_max, _open_files_max() // 2)
        try:
            hard_states = HardStates.open(directory.hard_states_path, file_system=self._file_system)
        except StorageDamaged as damage:
            raise StartRefused(
                f"The terms and votes of this node can't be read: {damage}."
            ) from None
        return ReplicaStore(
            directory=directory,
            file_system=self._file_system,
            open_files=OpenFiles(self._file_system, open_max),
            clock=self._clock,
            executor=self._disk,
            background=self._background,
            write_side=WriteSide(
                self._disk,
                self._settings.disk_timeout_ms / 1000,
                lambda files: self._file_system.whole_disk(directory.path, files),
                None if self._counters is None else self._counters.writes,
            ),
            limits=limits,
            own=self.exchange.own,
            outbound=self.exchange,
            hard_states=hard_states,
            random_below=self._parts.random_below,
            raft_settings=self._parts.raft,
            makers=self._executor("makers", MAKER_THREADS),
            counters=self._counters,
        )

    async def _cluster(self, directory: DataDirectory, static: Mapping[str, str]) -> Cluster:
        assert directory.cluster_id is not None
        replica = await self.partitions.open_metadata(directory.founders)
        snapshot_path = directory.metadata_directory / SNAPSHOT_FILE
        codec = ClusterRecordCodec()
        feed = Feed(
            replica=replica,
            make_state=ClusterState,
            codec=codec,
            snapshot_path=snapshot_path,
            file_system=self._file_system,
            executor=self._disk,
            snapshot_records=self._parts.snapshot_records,
        )
        host: Host[ClusterState, ClusterRecord] = Host(
            replica=replica,
            make_state=ClusterState,
            codec=codec,
            snapshot_path=snapshot_path,
            file_system=self._file_system,
            clock=self._clock,
            executor=self._disk,
            feed=feed,
        )
        cluster = Cluster(
            host=host,
            feed=feed,
            exchange=self.exchange,
            broker_id=self._settings.node,
            directory_id=directory.directory_id,
            cluster_id=directory.cluster_id,
            founders=directory.founders,
            static_broker_config=static,
            clock=self._clock,
            new_uuid=self._parts.new_uuid,
            random_below=self._parts.random_below,
        )
        cluster.on_change(self._follow_brokers)
        try:
            await cluster.load()
        except Refused as refused:
            raise StartRefused(f"The cluster's metadata can't be read: {refused.detail}") from None
        self._on_stop(feed.close)
        self._on_stop(host.close)
        self.cluster = cluster
        self.partitions.follow(cluster)
        self._dial_brokers()
        return cluster

    async def _services(self, directory: DataDirectory, limits: Limits) -> Services:
        clock, cluster, partitions, exchange = (
            self._clock,
            self.cluster,
            self.partitions,
            self.exchange,
        )
        topics = Topics(
            cluster=cluster,
            partitions=partitions,
            exchange=exchange,
            directory=directory,
            executor=self._background,
            clock=clock,
        )
        leaderships = Leaderships(
            cluster=cluster, partitions=partitions, leaders=exchange.leaders, exchange=exchange
        )
        selects_by_rack = cluster.broker_setting("replica.selector.class") == RACK_AWARE_SELECTOR
        produce = Produce(partitions=partitions, clock=clock)
        fetch = Fetch(
            partitions=partitions,
            limits=limits,
            executor=self._disk,
            selector=RackAwareSelector(cluster, exchange) if selects_by_rack else None,
        )
        offsets = Offsets(leaderships=leaderships)
        forwarding = Forwarding(
            own=cluster.broker_id,
            topics=topics,
            partitions=partitions,
            leaderships=leaderships,
            produce=produce,
            fetch=fetch,
            offsets=offsets,
            peers=exchange,
            clock=clock,
        )
        produce.gate = SchemaGate(
            make_judge=partial(make_judge, topics, forwarding, clock), executor=self._disk
        )
        producers = Producers(leaderships=leaderships, cluster=cluster)
        queues = Queues(
            cluster=cluster,
            partitions=partitions,
            leaderships=leaderships,
            coordinators=ShareCoordinators(
                cluster=cluster,
                partitions=partitions,
                topics=topics,
                leaderships=leaderships,
                peers=exchange,
                make_host=lambda replica: self._queue_host(replica, directory),
            ),
            peers=exchange,
            clock=clock,
            limits=limits,
            executor=self._disk,
            topics=topics,
            publisher=forwarding,
            identities=producers,
            random_below=self._parts.random_below,
            counters=self._counters,
            traces=self._traces(),
        )
        groups = Groups(
            cluster=cluster,
            partitions=partitions,
            topics=topics,
            leaderships=leaderships,
            clock=clock,
            limits=limits,
            make_host=lambda replica: self._group_host(replica, directory),
            queues=queues,
            new_uuid=self._parts.new_uuid,
        )
        locks = Locks(cluster=cluster, peers=exchange, clock=clock)
        self._on_stop(locks.close)
        await topics.open_all()
        self._on_stop(topics.close)
        await groups.load()
        self._on_stop(groups.close)
        await queues.load()
        self._on_stop(queues.close)
        upkeep = Upkeep(
            partitions=partitions,
            cluster=cluster,
            clock=clock,
            scrub_period_s=self._settings.scrub_hours * 3600.0,
        )
        upkeep.start()
        self._on_stop(upkeep.stop)
        reassignments = Reassignments(
            cluster=cluster, partitions=partitions, exchange=exchange, clock=clock
        )
        reassignments.start()
        self._on_stop(reassignments.stop)
        return Services(
            partitions=partitions,
            leaderships=leaderships,
            reassignments=reassignments,
            membership=Membership(cluster=cluster),
            quorum=Quorum(cluster=cluster, partitions=partitions, exchange=exchange),
            produce=produce,
            fetch=fetch,
            offsets=offsets,
            forwarding=forwarding,
            producers=producers,
            topics=topics,
            configs=Configs(
                cluster=cluster,
                derived=self._derived_settings(directory),
                topics_read=queues.topics_of,
            ),
            client_metrics=ClientMetrics(cluster=cluster, clock=clock),
            log_directories=LogDirectories(
                partitions=partitions,
                directory=directory.path,
                disk_usage=shutil.disk_usage,
                executor=self._disk,
            ),
            groups=groups,
            queues=queues,
            locks=locks,
            pressure=partitions.pressure,
            counters=self._counters,
            clock=clock,
            limits=limits,
        )

    def _traces(self) -> AttemptTraces | None:
        """None unless the node is set to trace: then queues are made without."""
        if not self._settings.tracing:
            return None
        counts = SpanCounts() if self._counters is None else self._counters.spans
        try:
            spans = Spans({"service.instance.id": str(self._settings.node)}, counts)
        except TracingUnavailable as missing:
            raise StartRefused(str(missing)) from None
        self._on_stop(lambda: asyncio.to_thread(spans.close))
        executor = self._executor("tracing", 1)
        return AttemptTraces(spans.add, counts, executor=executor, now_ns=time.time_ns)

    def _group_host(
        self, replica: Replica, directory: DataDirectory
    ) -> Host[GroupsState, GroupRecord]:
        topic_id, partition = replica.key
        place = directory.partition_directory(topic_id, partition)
        return Host(
            replica=replica,
            make_state=GroupsState,
            codec=GroupRecordCodec(),
            snapshot_path=place / SNAPSHOT_FILE,
            file_system=self._file_system,
            clock=self._clock,
            executor=self._disk,
            snapshot_records=self._parts.snapshot_records,
        )

    def _queue_host(
        self, replica: Replica, directory: DataDirectory
    ) -> Host[QueuesState, QueueRecord]:
        topic_id, partition = replica.key
        place = directory.partition_directory(topic_id, partition)
        return Host(
            replica=replica,
            make_state=QueuesState,
            codec=QueueRecordCodec(),
            snapshot_path=place / SNAPSHOT_FILE,
            file_system=self._file_system,
            clock=self._clock,
            executor=self._disk,
            snapshot_records=self._parts.snapshot_records,
        )

    def _executor(self, name: str, threads: int) -> Executor:
        executor = self._parts.make_executor(name, threads)
        self._on_stop(executor.shutdown)
        return executor

    def _on_stop(self, undo: Callable[[], object]) -> None:
        self._built.push_async_callback(_call, undo)

    def _derived_settings(self, directory: DataDirectory) -> dict[str, str]:
        return {
            "log.dirs": str(directory.path.absolute()),
            "listeners": f"PLAINTEXT://{self._settings.kafka}",
        }


async def _call(undo: Callable[[], object]) -> None:
    outcome = undo()
    if inspect.isawaitable(outcome):
        await outcome


def _limits(static: Mapping[str, str]) -> Limits:
    given: dict[str, Any] = {
        field: int(static[name]) for name, field in _LIMIT_SETTINGS.items() if name in static
    }
    return replace(Limits(), **given)


def _open_files_max() -> int:
    """Raises the soft limit of open files as far as the process may, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
            return soft
    return wanted
