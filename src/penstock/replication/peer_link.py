"""What the exchange keeps of one connection to another node, from its beginning to its end."""

from collections.abc import Callable

from penstock.model.ids import BrokerId, Offset, ReplicaId
from penstock.model.peers import PeerHello
from penstock.replication.peer_frames import FrameWriter
from penstock.replication.peer_network import Piece


class PeerLink:
    """Items written in one turn of the loop leave together; the order is kept."""

    __slots__ = ("_request_flush", "_writer", "hello", "id", "is_open", "metadata_applied", "node")

    def __init__(self, hello: PeerHello, request_flush: Callable[["PeerLink"], None]) -> None:
        self.hello = hello
        self.node: BrokerId = hello.node
        self.id = ReplicaId(hello.node, hello.directory)
        self.is_open = True
        # How far the other node has come with the metadata.
        self.metadata_applied = Offset(0)
        self._request_flush = request_flush
        self._writer = FrameWriter()

    def writer(self) -> FrameWriter:
        """Where to write what shall leave soon."""
        if not self._writer.size:
            self._request_flush(self)
        return self._writer

    @property
    def waiting_bytes(self) -> int:
        return self._writer.size

    def take(self) -> list[Piece]:
        return self._writer.take()
