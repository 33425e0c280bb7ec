"""What two nodes tell each other when they meet."""

from typing import NamedTuple

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId

# Nodes talk to each other only in the same version of the peer protocol.
PEER_VERSION = 2
# A node that belongs to no cluster yet.
NO_CLUSTER = ""


class PeerHello(NamedTuple):
    """Who a node is. Sent by both sides when a connection opens, before anything else."""

    version: int
    cluster_id: str
    node: BrokerId
    directory: DirectoryId
    # Counts the starts of the node: what was true of an earlier one need not be of this one.
    incarnation: int
    # Where other nodes reach it.
    endpoint: Endpoint
