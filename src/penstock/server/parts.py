"""What a node takes from the outside world: clocks, disks, threads, chance, and other nodes."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from random import Random
from typing import Protocol
from uuid import UUID, uuid4

from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.net.occasional_log import OccasionalLog
from penstock.net.peer_network import TcpPeerNetwork
from penstock.raft.settings import RaftSettings
from penstock.replication.peer_network import PeerNetwork
from penstock.replication.state_files import SNAPSHOT_RECORDS
from penstock.server.threads import Threads
from penstock.storage.file_system import FileSystem, RealFileSystem


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # As it is, without a call in between: every request looks at it.
    monotonic = staticmethod(time.monotonic)


class BoundNetwork(PeerNetwork, Protocol):
    """A network between nodes that also listens."""

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        """Listens; raises StartRefused if that can't be. Port 0 picks a free one."""
        ...

    async def close(self) -> None: ...

    @property
    def refusal(self) -> str | None:
        """The sentence with which another node refused this one last; None once one did not."""
        ...


def _real_network(secret: str | None, clock: Clock) -> BoundNetwork:
    return TcpPeerNetwork(secret=secret, log=OccasionalLog(clock))


def _real_executor(name: str, threads: int) -> Executor:
    return Threads(f"penstock-{name}", threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """All that a node takes from the outside world; a simulation passes its own."""

    clock: Clock = field(default_factory=SystemClock)
    file_system: FileSystem = field(default_factory=RealFileSystem)
    make_network: Callable[[str | None, Clock], BoundNetwork] = _real_network
    make_executor: Callable[[str, int], Executor] = _real_executor
    # A whole number from 0 up to but not including the argument.
    random_below: Callable[[int], int] = field(default_factory=lambda: Random().randrange)
    new_uuid: Callable[[], UUID] = uuid4
    raft: RaftSettings = field(default_factory=lambda: RaftSettings(heartbeats_by_host=True))
    # After this many records a state machine writes a snapshot.
    snapshot_records: int = SNAPSHOT_RECORDS
