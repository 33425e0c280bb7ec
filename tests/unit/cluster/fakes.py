"""A host without a disk: commits into a list, and can delay, refuse or forget as a disk would."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.cluster.coordinator import Cluster
from penstock.cluster.records import ClusterRecord, ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId

Stored = tuple[bytes | None, bytes | None]


class FakeHost:
    """Like the real one: applies at append, answers after commit, rebuilds after a failure."""

    def __init__(self, log: Sequence[Stored] = ()) -> None:
        self.log: list[Stored] = list(log)
        self.state = ClusterState()
        self.commits = 0
        self.is_disk_full = False
        # While set, appends are applied but nothing is committed.
        self.held: asyncio.Event | None = None
        self._codec = ClusterRecordCodec()
        self._damage: Exception | None = None

    @property
    def replica(self) -> Any:
        return SimpleNamespace(stopped_because=self._damage, log_end_offset=len(self.log))

    def damage(self, error: Exception) -> None:
        self._damage = error

    async def load(self) -> None:
        self.state = ClusterState()
        for key, value in self.log:
            self.state.apply(self._codec.decode(key, value))

    async def decide(
        self, decision: Callable[[ClusterState], tuple[Sequence[ClusterRecord], Any]]
    ) -> Any:
        records, answer = decision(self.state)
        encoded = [self._codec.encode(record) for record in records]
        for record in records:
            self.state.apply(record)
        if self.held is not None:
            await self.held.wait()
        await asyncio.sleep(0)
        if records and self.is_disk_full:
            await self.load()
            raise Refused(Reason.STORAGE_ERROR, "no space left on device")
        self.log += encoded
        self.commits += bool(records)
        return answer


def ids_from(first: int = 1) -> Callable[[], UUID]:
    """Ids that are the same in every run."""
    numbers = count(first)
    return lambda: UUID(int=next(numbers))


def make_cluster(host: FakeHost, **settings: str) -> Cluster:
    """`settings` are static broker settings, with underscores for dots."""
    return Cluster(
        host=host,  # type: ignore[arg-type]
        broker_id=BrokerId(0),
        cluster_id="cluster-of-one",
        static_broker_config={name.replace("_", "."): text for name, text in settings.items()},
        clock=SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0),
        new_uuid=ids_from(len(host.log) * 1000 + 1),
        advertised=Endpoint("localhost", 9092),
    )
