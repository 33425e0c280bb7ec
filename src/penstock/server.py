"""The composition root: the only place that builds real sockets, disks and clocks.

`Node` is one broker in a running event loop; `run` is a process around it, with signals and logs.
"""

import asyncio
import gc
import inspect
import logging
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from penstock.broker.configs import Configs
from penstock.broker.fetch import Fetch
from penstock.broker.groups import Groups
from penstock.broker.log_directories import LogDirectories
from penstock.broker.offsets import Offsets
from penstock.broker.partitions import Partitions
from penstock.broker.produce import Produce
from penstock.broker.producers import Producers
from penstock.broker.services import Services
from penstock.broker.topics import Topics
from penstock.broker.upkeep import Upkeep
from penstock.cluster.config_definitions import validate_static
from penstock.cluster.coordinator import Cluster
from penstock.cluster.records import ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.config import Settings, SettingsError
from penstock.frontdoor.kafka.door import KafkaDoor
from penstock.groups.records import GroupRecordCodec
from penstock.groups.state import GroupsState
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Refused, StartRefused
from penstock.model.ids import Term
from penstock.model.limits import Limits
from penstock.observe.logs import set_up_logs
from penstock.replication.hosting import Host, RecordCodec, StateMachine
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import FileSystem, RealFileSystem
from penstock.storage.open_files import OpenFiles

if TYPE_CHECKING:
    # At run time only `penstock log` needs it, and a start must be quick.
    from penstock.storage.repair import Damage

# Enough to keep several syncs in flight on one disk; more only queue up in the device.
DISK_THREADS = 4
DRAIN_TIMEOUT_S = 10.0
OPEN_FILES_WANTED = 65_536
SNAPSHOT_FILE = "state.snapshot"
# Requests make many short-lived objects and no cycles: the default of 700 looks far too often.
GC_THRESHOLD = 20_000
# Kafka's names of the settings that bound this process.
_LIMIT_SETTINGS = {
    "socket.request.max.bytes": "frame_bytes_max",
    "connections.max.idle.ms": "connection_idle_ms_max",
    "max.connections": "connections_max",
    "fetch.max.bytes": "fetch_bytes_max",
    "max.incremental.fetch.session.cache.slots": "fetch_sessions_max",
}

R = TypeVar("R")
S = TypeVar("S", bound=StateMachine)  # type: ignore[type-arg]  # a bound can't name R

logger = logging.getLogger(__name__)


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Node:
    """One broker: everything between the data directory and the Kafka door."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._file_system = RealFileSystem()
        # What was built so far, undone in reverse order by `stop` or by a start that fails.
        self._built = AsyncExitStack()

    async def start(self) -> Endpoint:
        """Opens the data directory, recovers, and listens; returns where clients connect.

        Raises StartRefused with one sentence when the operator must change something first.
        """
        try:
            return await self._start()
        except BaseException:
            await self._built.aclose()
            raise

    async def stop(self) -> None:
        """Answers what is in flight, makes everything durable, and lets go of the directory."""
        await self._built.aclose()

    async def _start(self) -> Endpoint:
        settings = self._settings
        static = validate_static(settings.broker)
        limits = _limits(static)
        directory = DataDirectory.open(
            settings.data_dir, node=settings.node, file_system=self._file_system
        )
        self._on_stop(directory.close)
        self._disk = self._executor("disk", DISK_THREADS)
        background = self._executor("background", 1)
        partitions = Partitions(store=self._store(directory, limits, background))
        self._on_stop(partitions.close)
        cluster = await self._cluster(directory, partitions, static)
        services = await self._services(directory, partitions, cluster, limits, background)
        return await self._open_door(services, limits)

    def _store(
        self, directory: DataDirectory, limits: Limits, background: Executor
    ) -> ReplicaStore:
        open_max = min(limits.open_segments_max, _open_files_max() // 2)
        return ReplicaStore(
            directory=directory,
            file_system=self._file_system,
            open_files=OpenFiles(self._file_system, open_max),
            clock=self._clock,
            executor=self._disk,
            background=background,
            limits=limits,
            term=Term(directory.incarnation),
        )

    async def _cluster(
        self, directory: DataDirectory, partitions: Partitions, static: Mapping[str, str]
    ) -> Cluster:
        host = self._host(
            await partitions.open_metadata(),
            directory.metadata_directory,
            ClusterState,
            ClusterRecordCodec(),
        )
        cluster = Cluster(
            host=host,
            broker_id=self._settings.node,
            cluster_id=directory.cluster_id,
            static_broker_config=static,
            clock=self._clock,
            new_uuid=uuid4,
        )
        try:
            await cluster.load()
        except Refused as refused:
            raise StartRefused(f"The cluster's metadata can't be read: {refused.detail}") from None
        self._on_stop(host.close)
        return cluster

    async def _services(
        self,
        directory: DataDirectory,
        partitions: Partitions,
        cluster: Cluster,
        limits: Limits,
        background: Executor,
    ) -> Services:
        clock = self._clock
        topics = Topics(
            cluster=cluster, partitions=partitions, directory=directory, executor=background
        )
        await topics.open_all()
        self._on_stop(topics.close)
        groups = Groups(
            cluster=cluster,
            partitions=partitions,
            topics=topics,
            clock=clock,
            limits=limits,
            make_host=lambda replica: self._host(
                replica,
                directory.partition_directory(replica.topic_id, replica.partition.partition),
                GroupsState,
                GroupRecordCodec(),
            ),
        )
        await groups.load()
        self._on_stop(groups.close)
        upkeep = Upkeep(partitions=partitions, cluster=cluster, clock=clock)
        upkeep.start()
        self._on_stop(upkeep.stop)
        return Services(
            cluster=cluster,
            partitions=partitions,
            produce=Produce(partitions=partitions, clock=clock),
            fetch=Fetch(partitions=partitions, clock=clock, limits=limits, executor=self._disk),
            offsets=Offsets(partitions=partitions),
            producers=Producers(partitions=partitions, cluster=cluster),
            topics=topics,
            configs=Configs(cluster=cluster, derived=self._derived_settings(directory)),
            log_directories=LogDirectories(
                partitions=partitions,
                directory=directory.path,
                disk_usage=shutil.disk_usage,
                executor=self._disk,
            ),
            groups=groups,
            pressure=partitions.pressure,
            clock=clock,
            limits=limits,
        )

    async def _open_door(self, services: Services, limits: Limits) -> Endpoint:
        door = KafkaDoor(services, limits, self._clock)
        self._on_stop(lambda: door.drain(DRAIN_TIMEOUT_S))
        bound = await door.start(*self._settings.kafka)
        # Before the first request can be read: the loop does not run between these two lines.
        services.cluster.advertised = self._settings.advertised(bound)
        return bound

    def _host(
        self, replica: Replica, directory: Path, make_state: Callable[[], S], codec: RecordCodec[R]
    ) -> Host[S, R]:
        return Host(
            replica=replica,
            make_state=make_state,
            codec=codec,
            snapshot_path=directory / SNAPSHOT_FILE,
            file_system=self._file_system,
            clock=self._clock,
            executor=self._disk,
        )

    def _executor(self, name: str, threads: int) -> Executor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix=f"penstock-{name}")
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


def check_settings(settings: Settings) -> None:
    """Raises SettingsError for a broker setting that the cluster does not know or can't use."""
    try:
        validate_static(settings.broker)
    except StartRefused as refused:
        raise SettingsError(str(refused)) from None


def run(settings: Settings) -> int:
    """Runs a node until SIGTERM or Ctrl-C; returns the exit code of the process."""
    check_settings(settings)
    set_up_logs(log_format=settings.log_format, level=settings.log_level)
    try:
        _run_in_loop(_serve(settings))
    except StartRefused as refused:
        print(f"penstock: {refused}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = Node(settings)
    bound = await node.start()
    # Scripts wait for this line, so it is the only one on stdout.
    print(
        f"penstock node {settings.node} ready: kafka={bound} data={settings.data_dir}", flush=True
    )
    # What was built so far lives as long as the process: no collection need look at it again, and
    # one over thousands of partitions would hold up every client.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    for door in settings.unopened_doors():
        logger.warning("this version opens only the Kafka door: --%s has no effect", door)
    await stop.wait()
    logger.info("stopping: answering what is in flight")
    await node.stop()
    logger.info("stopped")


def _run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """uvloop saves CPU on every request; asyncio's own loop does the same work without it."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        logger.debug("uvloop is not installed")
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def check_log(directory: Path) -> "list[Damage]":
    """All damage in the data directory of a stopped node."""
    from penstock.storage import repair

    return _inspect(directory, repair.check)


def repair_log(directory: Path) -> "list[Damage]":
    """Cuts each damaged log before its first damage; returns what was damaged."""
    from penstock.storage import repair

    return _inspect(directory, repair.cut)


def _inspect(directory: Path, look: "Callable[[Path, FileSystem], list[Damage]]") -> "list[Damage]":
    file_system = RealFileSystem()
    opened = DataDirectory.open_stopped(directory, file_system=file_system)
    try:
        found = [look(log, file_system) for log in opened.log_directories()]
    finally:
        opened.close()
    return [damage for damages in found for damage in damages]
