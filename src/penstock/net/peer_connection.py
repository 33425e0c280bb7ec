"""One connection to another node: the handshake first, then frames both ways until it ends.

A transport, not a raw socket: what travels here are few large writes, and transports are what a
later TLS needs. On uvloop the pieces of a frame go to the kernel without being joined.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from penstock.model.endpoint import Endpoint, is_loopback
from penstock.model.ids import BrokerId
from penstock.model.limits import MIB
from penstock.model.peers import PeerHello
from penstock.net.peer_buffer import LENGTH, PeerBuffer, PeerFraming
from penstock.net.peer_handshake import HANDSHAKE_BYTES_MAX, MAGIC, Handshake, HandshakeRefused

# The largest batch a topic may allow, and what is around it.
PEER_FRAME_BYTES_MAX: Final = 128 * MIB
# Over this the other side is not worth waiting for: the connection breaks and starts again.
PEER_QUEUE_BYTES_MAX: Final = 256 * MIB
HANDSHAKE_SECONDS_MAX: Final = 5.0
# Checks happen every second; this many of them without a byte end a connection. They are counted
# rather than timed, so that a process that was itself paused does not blame its peers for it.
SILENT_CHECKS_MAX: Final = 5
_KEEPALIVE: Final = LENGTH.pack(0)

logger = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """Who decides about connections and gets what they bring."""

    def make_handshake(self, connection: "PeerConnection") -> Handshake: ...

    def on_open(self, connection: "PeerConnection") -> None: ...

    def on_frame(self, node: BrokerId, frame: memoryview) -> None: ...

    def on_refused(self, connection: "PeerConnection", refusal: HandshakeRefused) -> None: ...

    def on_closed(self, connection: "PeerConnection", why: str) -> None: ...


class PeerConnection(asyncio.BufferedProtocol):
    """Made by a dialer for itself or by the network for an accepted socket."""

    def __init__(self, owner: ConnectionOwner, *, is_dialer: bool) -> None:
        self.is_dialer = is_dialer
        self.is_closed = False
        # Done when the handshake is over, however it ended: what a dialer waits for.
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The other node, once it is proven.
        self.peer: PeerHello | None = None
        self.remote = Endpoint("?", 0)
        self.is_loopback = False
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._buffer = PeerBuffer(HANDSHAKE_BYTES_MAX)
        self._handshake: Handshake | None = None
        self._magic_is_due = not is_dialer
        self._deadline: asyncio.TimerHandle | None = None
        self._heard = False
        self._spoke = False
        self._silent_checks = 0
        self._why = "the connection ended"

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not a subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.remote = _endpoint(transport.get_extra_info("peername"))
        local = _endpoint(transport.get_extra_info("sockname"))
        self.is_loopback = is_loopback(self.remote.host) and is_loopback(local.host)
        if self.is_closed:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(
            HANDSHAKE_SECONDS_MAX, self.close, "the handshake took too long"
        )
        self._handshake = self._owner.make_handshake(self)
        if self.is_dialer:
            self._transport.write(MAGIC)
        self._send_frames(self._handshake.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        self._buffer.filled(nbytes)
        try:
            self._serve_frames()
        except HandshakeRefused as refusal:
            self._refuse(refusal)
        except PeerFraming as fault:
            self.close(str(fault))
        except Exception:
            logger.exception("the connection to %s failed and is closed", self)
            self.close("a bug in this node")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.is_closed:
            self._why = f"the connection broke: {exc}"
        self._end()

    # Frames

    def _serve_frames(self) -> None:
        if self._magic_is_due and not self._take_magic():
            return
        buffer, owner = self._buffer, self._owner
        while not self.is_closed and (frame := buffer.next_frame()) is not None:
            if self._handshake is not None:
                self._shake_hands(bytes(frame))
            elif frame:
                assert self.peer is not None
                owner.on_frame(self.peer.node, frame)

    def _take_magic(self) -> bool:
        magic = self._buffer.take(len(MAGIC))
        if magic is None:
            return False
        if magic != MAGIC:
            # Whatever it is does not speak our language, so it is told nothing.
            self.close("it is not a Penstock node")
            return False
        self._magic_is_due = False
        return True

    def _shake_hands(self, frame: bytes) -> None:
        handshake = self._handshake
        assert handshake is not None
        self._send_frames(handshake.receive(frame))
        if handshake.is_done and not self.is_closed:
            self.peer = handshake.peer
            self._handshake = None
            self._buffer.frame_bytes_max = PEER_FRAME_BYTES_MAX
            self._settle()
            self._owner.on_open(self)

    def _send_frames(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.send((frame,))

    def send(self, pieces: Sequence[bytes | bytearray | memoryview]) -> bool:
        """One frame. False if the connection is over, or is now because too much waits."""
        transport = self._transport
        if self.is_closed or transport is None:
            return False
        size = sum(map(len, pieces))
        assert size <= PEER_FRAME_BYTES_MAX, "a frame must be cut before it gets here"
        if size + transport.get_write_buffer_size() > PEER_QUEUE_BYTES_MAX:
            self.close("it does not read what it is sent")
            return False
        self._spoke = True
        transport.writelines((LENGTH.pack(size), *pieces))
        return True

    @property
    def queued_bytes(self) -> int:
        transport = self._transport
        return 0 if transport is None or self.is_closed else transport.get_write_buffer_size()

    # Silence

    def check(self) -> None:
        """Called every second: breaks a connection that went silent, and keeps ours from it."""
        self._silent_checks = 0 if self._heard else self._silent_checks + 1
        self._heard = False
        if self._silent_checks >= SILENT_CHECKS_MAX:
            self.close("it sent nothing")
        elif not self._spoke and self.peer is not None and self._transport is not None:
            self._transport.write(_KEEPALIVE)
        self._spoke = False

    @property
    def is_quiet(self) -> bool:
        """Whether it may be dead: another connection is welcome then."""
        return self._silent_checks > 0

    # Ending

    def _refuse(self, refusal: HandshakeRefused) -> None:
        if not refusal.by_peer and self._transport is not None:
            self.send((refusal.frame(),))
        self._owner.on_refused(self, refusal)
        self._why = refusal.sentence
        if self._transport is not None:
            # What is queued still leaves.
            self._transport.close()
        self._end()

    def close(self, why: str) -> None:
        """Ends at once: what is queued is dropped."""
        if self.is_closed:
            return
        self._why = why
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def finish(self) -> None:
        """Ends in order: what is queued leaves first."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.settled.done():
            self.settled.set_result(None)

    def _end(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        # It knows the connection, and the two would keep each other, and the buffer, for long.
        self._handshake = None
        self._settle()
        self._owner.on_closed(self, self._why)

    def __str__(self) -> str:
        return f"node {self.peer.node}" if self.peer is not None else str(self.remote)


def _endpoint(name: Any) -> Endpoint:
    """Of a socket's name; one without a host and a port is not an address of ours."""
    if isinstance(name, tuple) and len(name) >= 2:
        return Endpoint(str(name[0]), int(name[1]))
    return Endpoint("?", 0)
