"""How two nodes prove to each other who they are, before anything else is said. Does no I/O.

    dialer                          acceptor
    MAGIC, HELLO (nonce)  ------->  checks version, cluster and node number
           checks the same  <-----  HELLO (nonce)
    PROOF                 ------->  checks the secret, decides whether it wants the connection
           checks the secret  <---  PROOF; the connection is open

A proof is an HMAC-SHA256 with the shared secret over the prover's part and both hellos, so none
can be used again or sent back. Instead of its next step either side may send REFUSED with the
reason. Nothing after the handshake is signed or encrypted: the secret keeps strangers and
misconfigured nodes out, not somebody who can alter packets.
"""

import hmac
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Final

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId
from penstock.model.peers import NO_CLUSTER, PEER_VERSION, PeerHello

MAGIC: Final = b"PENSTOCK"
HANDSHAKE_BYTES_MAX: Final = 4096
NONCE_SIZE: Final = 32
SENTENCE_LENGTH_MAX: Final = 500

_HELLO: Final = 1
_PROOF: Final = 2
_REFUSED: Final = 3
# Kind and version come first in every version; what follows them may change.
_VERSION: Final = Struct(">BH")
_NUMBERS: Final = Struct(">iQH")
_LENGTH: Final = Struct(">H")


class Why(Enum):
    """What a refusal means for the side that dialled."""

    # Something is wrong, and the sentence says what.
    SENTENCE = 0
    # There is a better connection between the two already.
    DUPLICATE = 1
    # The node dialled itself.
    SELF = 2


class HandshakeRefused(Exception):
    """The handshake ends without a connection."""

    def __init__(self, sentence: str, why: Why = Why.SENTENCE, *, by_peer: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.why = why
        self.by_peer = by_peer

    def frame(self) -> bytes:
        """How the other side learns of it."""
        return bytes((_REFUSED, self.why.value)) + self.sentence[:SENTENCE_LENGTH_MAX].encode()


class Handshake:
    """One side of it: frames go in, frames to send come out, until `is_done`."""

    def __init__(
        self,
        *,
        own: PeerHello,
        nonce: bytes,
        secret: bytes,
        is_loopback: bool,
        is_dialer: bool,
        is_own_nonce: Callable[[bytes], bool],
        admit: Callable[[PeerHello], None],
    ) -> None:
        """`admit` raises HandshakeRefused for a proven node whose connection is not wanted."""
        assert len(nonce) == NONCE_SIZE
        self._own = own
        self._secret = secret
        self._is_loopback = is_loopback
        self._is_dialer = is_dialer
        self._is_own_nonce = is_own_nonce
        self._admit = admit
        self._own_frame = _encode_hello(own, nonce)
        self._peer_frame = b""
        self.peer: PeerHello | None = None
        self.is_done = False

    def begin(self) -> list[bytes]:
        return [self._own_frame] if self._is_dialer else []

    def receive(self, frame: bytes) -> list[bytes]:
        """Raises HandshakeRefused."""
        kind = frame[0] if frame else 0
        if kind == _REFUSED:
            raise _refusal_of_peer(frame)
        if kind == _HELLO and self.peer is None:
            return self._on_hello(frame)
        if kind == _PROOF and self.peer is not None and not self.is_done:
            return self._on_proof(frame)
        raise HandshakeRefused("The handshake is out of order.")

    def _on_hello(self, frame: bytes) -> list[bytes]:
        hello, nonce = _decode_hello(frame)
        if self._is_own_nonce(nonce):
            raise HandshakeRefused("This is the same node.", Why.SELF)
        self._check(hello)
        self.peer = hello
        self._peer_frame = frame
        return [self._own_proof()] if self._is_dialer else [self._own_frame]

    def _check(self, peer: PeerHello) -> None:
        own = self._own
        if not self._secret and not self._is_loopback:
            raise HandshakeRefused(
                f"Node {own.node} has no peer secret, so it talks only to nodes on its own machine."
            )
        if NO_CLUSTER != peer.cluster_id != own.cluster_id != NO_CLUSTER:
            raise HandshakeRefused(
                f"Node {peer.node} belongs to cluster {peer.cluster_id}, "
                f"node {own.node} to cluster {own.cluster_id}."
            )
        if peer.node == own.node:
            raise HandshakeRefused(
                f"Both nodes have the number {own.node}; give one of them another."
            )

    def _on_proof(self, frame: bytes) -> list[bytes]:
        assert self.peer is not None
        expected = self._proof(of_dialer=not self._is_dialer)
        if not hmac.compare_digest(frame[1:], expected):
            raise HandshakeRefused(
                f"The peer secrets of node {self._own.node} and node {self.peer.node} differ."
            )
        self._admit(self.peer)
        self.is_done = True
        return [] if self._is_dialer else [self._own_proof()]

    def _own_proof(self) -> bytes:
        return bytes((_PROOF,)) + self._proof(of_dialer=self._is_dialer)

    def _proof(self, *, of_dialer: bool) -> bytes:
        frames = (self._own_frame, self._peer_frame)
        dialer, acceptor = frames if self._is_dialer else frames[::-1]
        part = b"dialer" if of_dialer else b"acceptor"
        # Both hellos are bound by their lengths, so no two transcripts read the same.
        lengths = _LENGTH.pack(len(dialer)) + _LENGTH.pack(len(acceptor))
        return hmac.digest(self._secret, part + lengths + dialer + acceptor, "sha256")


def _refusal_of_peer(frame: bytes) -> HandshakeRefused:
    code = frame[1] if len(frame) > 1 else 0
    why = Why(code) if code <= Why.SELF.value else Why.SENTENCE
    text = frame[2:].decode(errors="replace")[:SENTENCE_LENGTH_MAX]
    sentence = "".join(letter if letter.isprintable() else "?" for letter in text)
    return HandshakeRefused(sentence or "No reason was given.", why, by_peer=True)


def _encode_hello(hello: PeerHello, nonce: bytes) -> bytes:
    parts = [
        _VERSION.pack(_HELLO, hello.version),
        _NUMBERS.pack(hello.node, hello.incarnation, hello.endpoint.port),
    ]
    for text in (hello.cluster_id, hello.directory, hello.endpoint.host):
        data = text.encode()
        parts.append(_LENGTH.pack(len(data)))
        parts.append(data)
    parts.append(nonce)
    return b"".join(parts)


def _decode_hello(frame: bytes) -> tuple[PeerHello, bytes]:
    if len(frame) < _VERSION.size:
        raise HandshakeRefused("The hello is too short.")
    _, version = _VERSION.unpack_from(frame)
    if version != PEER_VERSION:
        raise HandshakeRefused(
            f"One node speaks version {version} of the peer protocol, the other version "
            f"{PEER_VERSION}: they need the same."
        )
    position = _VERSION.size + _NUMBERS.size
    if len(frame) < position:
        raise HandshakeRefused("The hello is too short.")
    node, incarnation, port = _NUMBERS.unpack_from(frame, _VERSION.size)
    texts = []
    for _ in range(3):
        text, position = _decode_text(frame, position)
        texts.append(text)
    nonce = frame[position:]
    if len(nonce) != NONCE_SIZE or node < 0 or not texts[1]:
        raise HandshakeRefused("The hello can't be read.")
    endpoint = Endpoint(texts[2], port)
    directory = DirectoryId(texts[1])
    hello = PeerHello(version, texts[0], BrokerId(node), directory, incarnation, endpoint)
    return hello, nonce


def _decode_text(frame: bytes, position: int) -> tuple[str, int]:
    start = position + _LENGTH.size
    if start > len(frame):
        raise HandshakeRefused("The hello is too short.")
    stop = start + _LENGTH.unpack_from(frame, position)[0]
    try:
        text = frame[start:stop].decode()
    except UnicodeDecodeError:
        raise HandshakeRefused("The hello can't be read.") from None
    if stop > len(frame) or not text.isprintable():
        raise HandshakeRefused("The hello can't be read.")
    return text, stop
