"""How nodes reach each other, as replication sees it: frames between pairs of nodes, in order.

The real one is `net/peer_network.py`; the simulator brings its own. A frame is delivered once and
in order, or the connection ends and both sides hear of it; what was sent before may be lost then.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.model.peers import PeerHello
from penstock.net.peer_listener import PeerListener as PeerListener

Piece = bytes | bytearray | memoryview


class PeerNetwork(Protocol):
    def start(self, hello: PeerHello, listener: PeerListener) -> None:
        """From now on connections are accepted and made, in this node's name."""
        ...

    def set_cluster(self, cluster_id: str) -> None:
        """Connections that open from now on say that we belong to this cluster."""
        ...

    def set_peers(self, peers: Mapping[BrokerId, Endpoint]) -> None:
        """The nodes to stay connected to; replaces what was said before."""
        ...

    def meet(self, endpoints: Sequence[Endpoint]) -> None:
        """Addresses to stay connected to, of nodes whose numbers are not known yet."""
        ...

    def send(self, node: BrokerId, pieces: Sequence[Piece]) -> bool:
        """Sends one frame made of the pieces, which nobody may change afterwards.

        False when there is no connection. What waits is bounded: the connection breaks over it.
        """
        ...

    def queued_bytes(self, node: BrokerId) -> int:
        """What was sent and still waits here."""
        ...

    def drop(self, node: BrokerId, why: str) -> None:
        """Breaks the connection; it is made again like any other that was lost."""
        ...
