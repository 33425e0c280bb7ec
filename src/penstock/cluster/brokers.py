"""A broker as the cluster's metadata holds it."""

from dataclasses import dataclass

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId

# The dynamic setting of one broker that keeps new replicas away from it.
DRAINED = "penstock.drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A member of the cluster: where it is reached, and with which data directory it counts."""

    id: BrokerId
    directory: DirectoryId
    # Where clients and where other nodes reach it.
    kafka: Endpoint
    peer: Endpoint
    rack: str | None = None

    @property
    def replica_id(self) -> ReplicaId:
        return ReplicaId(self.id, self.directory)
