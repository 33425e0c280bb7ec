"""Who hears what happens on the connections to other nodes."""

from typing import Protocol

from penstock.model.ids import BrokerId
from penstock.model.peers import PeerHello


class PeerListener(Protocol):
    """Called on the event loop. A connection that replaces another ends the other one first."""

    def connected(self, hello: PeerHello) -> None:
        """The node was checked and may be sent to; nothing of an earlier connection follows."""
        ...

    def disconnected(self, node: BrokerId, *, process_died: bool) -> None:
        """The connection ended. Called a second time with `process_died` once that is known:
        nothing listens where the node was."""
        ...

    def received(self, node: BrokerId, frame: memoryview) -> None:
        """One frame. If it is read-only, what is kept of it stays as it is; otherwise its bytes
        are valid until this returns."""
        ...
