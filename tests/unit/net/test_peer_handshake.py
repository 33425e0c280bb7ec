"""Proves who gets through the handshake of two nodes, and what the others are told."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId
from penstock.model.peers import NO_CLUSTER, PEER_VERSION, PeerHello
from penstock.net.peer_handshake import (
    HANDSHAKE_BYTES_MAX,
    NONCE_SIZE,
    SENTENCE_LENGTH_MAX,
    Handshake,
    HandshakeRefused,
    Why,
)


def hello(node: int, *, cluster: str = "blue", version: int = PEER_VERSION) -> PeerHello:
    directory = DirectoryId(f"directory-{node}")
    return PeerHello(version, cluster, BrokerId(node), directory, 7, Endpoint("127.0.0.1", 9095))


def accept_all(_: PeerHello) -> None:
    """Every proven node is welcome."""


def side(
    own: PeerHello,
    *,
    is_dialer: bool,
    secret: bytes = b"secret",
    is_loopback: bool = True,
    admit: Callable[[PeerHello], None] = accept_all,
    own_nonces: tuple[bytes, ...] = (),
    nonce: bytes = b"",
) -> Handshake:
    return Handshake(
        own=own,
        nonce=nonce or bytes([own.node]) * NONCE_SIZE,
        secret=secret,
        is_loopback=is_loopback,
        is_dialer=is_dialer,
        is_own_nonce=lambda found: found in own_nonces,
        admit=admit,
    )


def shake(dialer: Handshake, acceptor: Handshake) -> list[bytes]:
    """Carries frames to and fro until nobody says anything; gives all of them."""
    seen = []
    frames, receiver, other = dialer.begin(), acceptor, dialer
    while frames:
        (frame,) = frames
        seen.append(frame)
        assert len(frame) < HANDSHAKE_BYTES_MAX
        frames, receiver, other = receiver.receive(frame), other, receiver
    return seen


def refusal(dialer: Handshake, acceptor: Handshake) -> HandshakeRefused:
    with pytest.raises(HandshakeRefused) as caught:
        shake(dialer, acceptor)
    return caught.value


def test_two_nodes_with_the_same_secret_meet() -> None:
    dialer, acceptor = side(hello(1), is_dialer=True), side(hello(2), is_dialer=False)
    shake(dialer, acceptor)
    assert dialer.is_done
    assert acceptor.is_done
    assert dialer.peer == hello(2)
    assert acceptor.peer == hello(1)


def test_a_node_without_a_cluster_may_meet_one_that_has_one() -> None:
    dialer = side(hello(1, cluster=NO_CLUSTER), is_dialer=True)
    acceptor = side(hello(2), is_dialer=False)
    shake(dialer, acceptor)
    assert acceptor.is_done


@pytest.mark.parametrize("secrets", [(b"one", b"other"), (b"one", b""), (b"", b"other")])
def test_different_secrets_are_refused_before_the_acceptor_proves_anything(
    secrets: tuple[bytes, bytes],
) -> None:
    dialer = side(hello(1), is_dialer=True, secret=secrets[0])
    acceptor = side(hello(2), is_dialer=False, secret=secrets[1])
    refused = refusal(dialer, acceptor)
    assert refused.sentence == "The peer secrets of node 2 and node 1 differ."
    assert not acceptor.is_done
    assert not dialer.is_done


def test_another_cluster_is_refused() -> None:
    refused = refusal(
        side(hello(1, cluster="red"), is_dialer=True), side(hello(2), is_dialer=False)
    )
    assert refused.sentence == "Node 1 belongs to cluster red, node 2 to cluster blue."


def test_another_version_is_refused_whatever_else_it_says() -> None:
    dialer = side(hello(1, version=PEER_VERSION + 1), is_dialer=True)
    (frame,) = dialer.begin()
    with pytest.raises(
        HandshakeRefused, match=rf"version {PEER_VERSION + 1} .* version {PEER_VERSION}"
    ):
        side(hello(2), is_dialer=False).receive(frame[:5])


def test_the_same_number_is_refused() -> None:
    other = hello(1)._replace(directory=DirectoryId("other"))
    refused = refusal(
        side(hello(1), is_dialer=True, nonce=b"a" * NONCE_SIZE), side(other, is_dialer=False)
    )
    assert refused.sentence == "Both nodes have the number 1; give one of them another."


def test_a_node_that_dials_itself_notices() -> None:
    nonce = b"n" * NONCE_SIZE
    dialer = side(hello(1), is_dialer=True, nonce=nonce)
    refused = refusal(dialer, side(hello(1), is_dialer=False, own_nonces=(nonce,)))
    assert refused.why is Why.SELF


def test_without_a_secret_only_nodes_of_the_same_machine_meet() -> None:
    shake(side(hello(1), is_dialer=True, secret=b""), side(hello(2), is_dialer=False, secret=b""))
    refused = refusal(
        side(hello(1), is_dialer=True, secret=b"", is_loopback=False),
        side(hello(2), is_dialer=False, secret=b"", is_loopback=False),
    )
    assert "has no peer secret" in refused.sentence


def test_a_proof_can_not_be_sent_back_nor_used_again() -> None:
    """Anyone who does not know the secret has only what it overheard."""
    frames = shake(side(hello(1), is_dialer=True), side(hello(2), is_dialer=False))
    acceptor = side(hello(2), is_dialer=False, nonce=b"z" * NONCE_SIZE)
    acceptor.receive(frames[0])
    with pytest.raises(HandshakeRefused, match="secrets"):
        acceptor.receive(frames[2])
    dialer = side(hello(1), is_dialer=True)
    (own_hello,) = dialer.begin()
    (proof,) = dialer.receive(side(hello(2), is_dialer=False).receive(own_hello)[0])
    with pytest.raises(HandshakeRefused, match="secrets"):
        dialer.receive(proof)


def test_a_proven_node_may_still_be_unwanted_and_hears_why() -> None:
    def unwanted(peer: PeerHello) -> None:
        raise HandshakeRefused(f"Node {peer.node} is not wanted.", Why.DUPLICATE)

    dialer = side(hello(1), is_dialer=True)
    refused = refusal(dialer, side(hello(2), is_dialer=False, admit=unwanted))
    with pytest.raises(HandshakeRefused) as caught:
        dialer.receive(refused.frame())
    assert caught.value.by_peer
    assert caught.value.why is Why.DUPLICATE
    assert caught.value.sentence == "Node 1 is not wanted."


def test_a_refusal_is_made_harmless_before_it_is_logged() -> None:
    dialer = side(hello(1), is_dialer=True)
    with pytest.raises(HandshakeRefused) as caught:
        dialer.receive(b"\x03\xff" + b"a\nb\x1b[31m" + b"x" * 5000)
    assert caught.value.sentence.startswith("a?b?[31m")
    assert len(caught.value.sentence) <= SENTENCE_LENGTH_MAX


def test_steps_out_of_order_are_refused() -> None:
    acceptor = side(hello(2), is_dialer=False)
    for frame in (b"", b"\x02" + bytes(32), b"\x09"):
        with pytest.raises(HandshakeRefused):
            acceptor.receive(frame)


@given(frame=st.binary(max_size=200), is_dialer=st.booleans())
def test_any_bytes_are_refused_or_understood(frame: bytes, is_dialer: bool) -> None:
    handshake = side(hello(2), is_dialer=is_dialer)
    for data in (frame, b"\x01\x00\x01" + frame):
        try:
            handshake.receive(data)
        except HandshakeRefused:
            assert not handshake.is_done
