"""What a front door sees of the broker: the use cases, side by side, built by the server."""

from dataclasses import dataclass

from penstock.broker.client_metrics import ClientMetrics
from penstock.broker.configs import Configs
from penstock.broker.fetch import Fetch
from penstock.broker.forwarding import Forwarding
from penstock.broker.groups import Groups
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
from penstock.broker.reassignments import Reassignments
from penstock.broker.topics import Topics
from penstock.model.clock import Clock
from penstock.model.limits import Limits
from penstock.observe.node_counters import NodeCounters
from penstock.replication.pressure import Pressure


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """No behaviour of its own: a handler takes the use case it needs."""

    partitions: Partitions
    leaderships: Leaderships
    reassignments: Reassignments
    membership: Membership
    quorum: Quorum
    produce: Produce
    fetch: Fetch
    offsets: Offsets
    forwarding: Forwarding
    producers: Producers
    topics: Topics
    configs: Configs
    client_metrics: ClientMetrics
    log_directories: LogDirectories
    groups: Groups
    queues: Queues
    locks: Locks
    pressure: Pressure
    # None where the node counts nothing.
    counters: NodeCounters | None
    clock: Clock
    limits: Limits
