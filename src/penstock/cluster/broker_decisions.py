"""Decides who belongs to the cluster: registration, replacement after a lost disk, removal."""

from collections.abc import Collection

from penstock.cluster.brokers import Broker
from penstock.cluster.records import (
    BrokerConfigStored,
    BrokerRemoved,
    BrokerStored,
    ClusterRecord,
)
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, DirectoryId


def decide_registration(
    state: ClusterState, broker: Broker, live_directory: DirectoryId | None
) -> tuple[list[ClusterRecord], None]:
    """A broker comes, comes back, or comes back with another data directory.

    `live_directory` is the one under which a node of this number is connected now, if any is.
    """
    known = state.brokers.get(broker.id)
    if known == broker:
        return [], None
    is_other = known is not None and known.directory != broker.directory
    if known is not None and is_other and live_directory == known.directory:
        detail = (
            f"Node {broker.id} is running with the data directory {known.directory}; "
            f"another node, with the directory {broker.directory}, can't take its number."
        )
        raise Refused(Reason.INVALID_REQUEST, detail)
    return [BrokerStored(broker=broker)], None


def decide_removal(
    state: ClusterState, broker: BrokerId, alive: Collection[BrokerId]
) -> tuple[list[ClusterRecord], None]:
    if broker not in state.brokers:
        if broker in state.removed_brokers:
            # A client that got no answer asks again, and should hear that it is done.
            return [], None
        detail = f"Broker {broker} is not registered."
        raise Refused(Reason.BROKER_ID_NOT_REGISTERED, detail)
    held = state.replica_counts[broker]
    if held:
        detail = f"Broker {broker} holds {held} replica(s); drain it first."
        raise Refused(Reason.INVALID_REQUEST, detail)
    if broker in alive and not state.is_drained(broker):
        detail = f"Broker {broker} is running and may get replicas at any time; drain it first."
        raise Refused(Reason.INVALID_REQUEST, detail)
    records: list[ClusterRecord] = [BrokerRemoved(broker=broker)]
    if state.broker_config(str(broker)):
        # Anyone who takes the number later starts without the settings of this one.
        records.append(BrokerConfigStored(broker=str(broker), configs={}))
    return records, None
