"""The connections of this node to all others: one TCP connection per pair.

Both sides may dial. If both do at once, the connection that the node with the lower number dialled
stays, and every node comes to that decision by itself (`_admit`).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from random import randrange
from typing import Final

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.model.peers import PeerHello
from penstock.net.listener import Listener
from penstock.net.occasional_log import OccasionalLog
from penstock.net.peer_connection import PeerConnection
from penstock.net.peer_dialer import PeerDialer
from penstock.net.peer_handshake import NONCE_SIZE, Handshake, HandshakeRefused, Why
from penstock.net.peer_listener import PeerListener

# Accepted and not yet proven, so that strangers can't take all descriptors.
HANDSHAKES_MAX: Final = 64
CHECK_SECONDS: Final = 1.0
# Refusals that were logged and are not logged again.
REPORTED_MAX: Final = 64

logger = logging.getLogger(__name__)


class TcpPeerNetwork:
    """Implements replication's PeerNetwork."""

    def __init__(
        self,
        *,
        secret: str | None,
        log: OccasionalLog,
        random_below: Callable[[int], int] = randrange,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._secret = (secret or "").encode()
        self._log = log
        self._random_below = random_below
        self._random_bytes = random_bytes
        self._tcp = Listener(self._accept, log=log)
        self._hello: PeerHello | None = None
        self._listener: PeerListener | None = None
        self._connections: dict[BrokerId, PeerConnection] = {}
        # Their handshake is under way, and the nonce that each of them uses.
        self._pending: dict[PeerConnection, bytes] = {}
        self._dialers: dict[Endpoint, PeerDialer] = {}
        self._dialer_of: dict[PeerConnection, PeerDialer] = {}
        self._known: dict[Endpoint, BrokerId] = {}
        self._met: dict[Endpoint, None] = {}
        self._own_endpoints: set[Endpoint] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()
        # What another node last said when it refused this one; None once any accepted it.
        self.refusal: str | None = None
        self._check: asyncio.TimerHandle | None = None
        self._is_closed = False

    # Life

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        """Listens; anyone who connects before `start` is turned away and comes again."""
        return await self._tcp.start(endpoint.host, endpoint.port)

    def start(self, hello: PeerHello, listener: PeerListener) -> None:
        assert self._hello is None, "started twice"
        self._hello = hello
        self._listener = listener
        self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._on_check)

    async def close(self) -> None:
        self._is_closed = True
        if self._check is not None:
            self._check.cancel()
        self._tcp.close()
        for dialer in self._dialers.values():
            dialer.stop()
        self._dialers.clear()
        for task in list(self._accepting):
            task.cancel()
        for connection in [*self._pending, *self._connections.values()]:
            connection.finish()
        # The transports hand over what they still have in the next turns of the loop.
        await asyncio.sleep(0)

    def set_cluster(self, cluster_id: str) -> None:
        assert self._hello is not None
        self._hello = self._hello._replace(cluster_id=cluster_id)

    # Whom to dial

    def set_peers(self, peers: Mapping[BrokerId, Endpoint]) -> None:
        assert self._hello is not None
        own = self._hello.node
        self._known = {endpoint: node for node, endpoint in peers.items() if node != own}
        self._follow_addresses()

    def meet(self, endpoints: Sequence[Endpoint]) -> None:
        self._met.update(dict.fromkeys(endpoints))
        self._follow_addresses()

    def _follow_addresses(self) -> None:
        if self._is_closed:
            return
        wanted = (self._known.keys() | self._met.keys()) - self._own_endpoints
        for endpoint in self._dialers.keys() - wanted:
            self._dialers.pop(endpoint).stop()
        for endpoint in sorted(wanted):
            node = self._known.get(endpoint)
            dialer = self._dialers.get(endpoint)
            if dialer is None:
                self._dialers[endpoint] = self._make_dialer(endpoint, node)
            elif node is not None:
                dialer.node = node

    def _make_dialer(self, endpoint: Endpoint, node: BrokerId | None) -> PeerDialer:
        assert self._hello is not None
        return PeerDialer(
            endpoint,
            node,
            make_connection=self._make_dialled,
            is_connected=self._connections.__contains__,
            defers_to=self._hello.node.__gt__,
            on_process_died=self._on_process_died,
            random_below=self._random_below,
        )

    def _make_dialled(self, dialer: PeerDialer) -> PeerConnection:
        connection = PeerConnection(self, is_dialer=True)
        self._dialer_of[connection] = dialer
        return connection

    def _on_process_died(self, node: BrokerId) -> None:
        if self._listener is not None and node not in self._connections:
            self._listener.disconnected(node, process_died=True)

    # Who dials us

    def _accept(self, sock: socket.socket, remote: Endpoint) -> None:
        if self._hello is None or self._is_closed or len(self._accepting) >= HANDSHAKES_MAX:
            sock.close()
            return
        task = asyncio.get_running_loop().create_task(self._accept_connection(sock))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _accept_connection(self, sock: socket.socket) -> None:
        """Lasts as long as the handshake, which bounds how many there are at a time."""
        connection = PeerConnection(self, is_dialer=False)
        try:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:
            sock.close()
            self._log.warning(logger, "peer-accept", "lost a peer while accepting it: %s", error)
            return
        await connection.settled

    # Handshakes

    def make_handshake(self, connection: PeerConnection) -> Handshake:
        assert self._hello is not None
        nonce = self._random_bytes(NONCE_SIZE)
        self._pending[connection] = nonce
        return Handshake(
            own=self._hello,
            nonce=nonce,
            secret=self._secret,
            is_loopback=connection.is_loopback,
            is_dialer=connection.is_dialer,
            is_own_nonce=lambda found: found in self._pending.values(),
            admit=lambda peer: self._admit(connection, peer),
        )

    def _admit(self, connection: PeerConnection, peer: PeerHello) -> None:
        """Raises HandshakeRefused, or ends the connection that this one replaces."""
        assert self._hello is not None
        existing = self._connections.get(peer.node)
        if existing is None or existing.peer is None:
            return
        if existing.peer.directory != peer.directory:
            raise HandshakeRefused(
                f"A node with the number {peer.node} and another data directory is connected to "
                f"node {self._hello.node} already."
            )
        is_older = peer.incarnation < existing.peer.incarnation
        is_same = peer.incarnation == existing.peer.incarnation
        if is_older or (is_same and self._is_worse(connection, existing, peer)):
            raise HandshakeRefused("There is already a connection.", Why.DUPLICATE)
        existing.close("another connection replaces it")

    def _is_worse(self, new: PeerConnection, existing: PeerConnection, peer: PeerHello) -> bool:
        """Anyone who dials again has given up the first, and a quiet one may be half dead."""
        assert self._hello is not None
        we_are_lower = self._hello.node < peer.node
        existing_is_preferred = existing.is_dialer == we_are_lower
        new_is_preferred = new.is_dialer == we_are_lower
        return existing_is_preferred and not new_is_preferred and not existing.is_quiet

    # What connections report

    def on_open(self, connection: PeerConnection) -> None:
        peer = connection.peer
        assert peer is not None
        assert self._listener is not None
        assert peer.node not in self._connections
        self._pending.pop(connection, None)
        self._connections[peer.node] = connection
        self.refusal = None
        dialer = self._dialer_of.get(connection)
        if dialer is not None:
            dialer.node = peer.node
        logger.info("connected to node %d at %s", peer.node, connection.remote)
        self._listener.connected(peer)

    def on_frame(self, node: BrokerId, frame: memoryview) -> None:
        assert self._listener is not None
        self._listener.received(node, frame)

    def on_refused(self, connection: PeerConnection, refusal: HandshakeRefused) -> None:
        dialer = self._dialer_of.get(connection)
        if refusal.why is Why.SELF:
            if dialer is not None:
                self._own_endpoints.add(dialer.endpoint)
                self._follow_addresses()
        elif refusal.why is Why.SENTENCE:
            if refusal.by_peer:
                self.refusal = refusal.sentence
            self._tell_refusal(connection, dialer, refusal)

    def _tell_refusal(
        self, connection: PeerConnection, dialer: PeerDialer | None, refusal: HandshakeRefused
    ) -> None:
        if dialer is None:
            side = "refuses this node" if refusal.by_peer else "is refused"
            self._tell_once(f"A node at {connection.remote.host} {side}: {refusal.sentence}")
        else:
            side = "refuses this node" if refusal.by_peer else "is refused"
            dialer.tell_once(f"The node at {dialer.endpoint} {side}: {refusal.sentence}")

    def _tell_once(self, text: str) -> None:
        """A node that does not fit dials again and again; one line about it is enough."""
        if text in self._reported:
            return
        if len(self._reported) >= REPORTED_MAX:
            self._reported.clear()
        self._reported.add(text)
        logger.warning("%s", text)

    def on_closed(self, connection: PeerConnection, why: str) -> None:
        self._pending.pop(connection, None)
        self._dialer_of.pop(connection, None)
        peer = connection.peer
        if peer is None or self._connections.get(peer.node) is not connection:
            return
        del self._connections[peer.node]
        assert self._listener is not None
        if not self._is_closed:
            logger.info("disconnected from node %d: %s", peer.node, why)
        self._listener.disconnected(peer.node, process_died=False)
        for dialer in self._dialers.values():
            if dialer.node == peer.node:
                dialer.lost()

    # Sending, and looking after

    def send(self, node: BrokerId, pieces: Sequence[bytes | bytearray | memoryview]) -> bool:
        connection = self._connections.get(node)
        return connection is not None and connection.send(pieces)

    def queued_bytes(self, node: BrokerId) -> int:
        connection = self._connections.get(node)
        return 0 if connection is None else connection.queued_bytes

    def drop(self, node: BrokerId, why: str) -> None:
        connection = self._connections.get(node)
        if connection is not None:
            connection.close(why)

    def _on_check(self) -> None:
        self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._on_check)
        for connection in list(self._connections.values()):
            connection.check()
