"""Proves on loopback sockets how nodes find each other, lose each other, and are kept apart."""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import ReferenceType, ref

import pytest
import uvloop

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId
from penstock.model.peers import PEER_VERSION, PeerHello
from penstock.net import peer_connection, peer_dialer, peer_network
from penstock.net.occasional_log import OccasionalLog
from penstock.net.peer_connection import PeerConnection
from penstock.net.peer_dialer import PeerDialer
from penstock.net.peer_handshake import MAGIC
from penstock.net.peer_network import TcpPeerNetwork
from penstock.server import SystemClock

Run = Callable[[Coroutine[Any, Any, None]], None]


class Node:
    """A network and everything that it reported."""

    def __init__(
        self, number: int, *, secret: str | None, directory: str, incarnation: int
    ) -> None:
        self.number = BrokerId(number)
        self.network = TcpPeerNetwork(secret=secret, log=OccasionalLog(SystemClock()))
        self.hellos: dict[BrokerId, PeerHello] = {}
        self.events: list[str] = []
        self.frames: list[tuple[int, bytes]] = []
        self.endpoint = Endpoint("", 0)
        self._directory = DirectoryId(directory or f"directory-{number}")
        self._incarnation = incarnation

    async def start(self, cluster: str) -> None:
        self.endpoint = await self.network.bind(Endpoint("127.0.0.1", 0))
        hello = PeerHello(
            PEER_VERSION, cluster, self.number, self._directory, self._incarnation, self.endpoint
        )
        self.network.start(hello, self)

    def connected(self, hello: PeerHello) -> None:
        assert hello.node not in self.hellos
        self.hellos[hello.node] = hello
        self.events.append(f"+{hello.node}")

    def disconnected(self, node: BrokerId, *, process_died: bool) -> None:
        self.events.append(f"{'died ' if process_died else '-'}{node}")
        assert process_died == (node not in self.hellos)
        self.hellos.pop(node, None)

    def received(self, node: BrokerId, frame: memoryview) -> None:
        self.frames.append((node, bytes(frame)))


class Nodes:
    def __init__(self) -> None:
        self.all: list[Node] = []

    async def start(
        self,
        number: int,
        *,
        secret: str | None = None,
        directory: str = "",
        incarnation: int = 1,
        cluster: str = "",
    ) -> Node:
        node = Node(number, secret=secret, directory=directory, incarnation=incarnation)
        self.all.append(node)
        await node.start(cluster)
        return node

    async def close(self) -> None:
        for node in self.all:
            await node.network.close()


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


def is_at_rest(*nodes: Node) -> bool:
    """Nobody dials, and no handshake is under way: whatever is connected now stays connected."""
    return all(
        not node.network._pending
        and all(dialer._wake._waiters for dialer in node.network._dialers.values())  # type: ignore[attr-defined]
        for node in nodes
    )


def play(test: Callable[[Nodes], Awaitable[None]]) -> Coroutine[Any, Any, None]:
    async def go() -> None:
        nodes = Nodes()
        try:
            async with asyncio.timeout(60):
                await test(nodes)
        finally:
            await nodes.close()

    return go()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


def test_three_nodes_find_each_other_and_exchange_frames(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        three = [await nodes.start(number, secret="s") for number in (1, 2, 3)]
        endpoints = [node.endpoint for node in three]
        for node in three:
            node.network.meet(endpoints)
        await until(lambda: all(len(node.hellos) == 2 for node in three) and is_at_rest(*three))
        for node in three:
            for other in three:
                is_sent = node.network.send(
                    other.number, [b"from ", bytearray(b"%d" % node.number)]
                )
                assert is_sent == (node is not other)
        await until(lambda: all(len(node.frames) == 2 for node in three))
        assert sorted(three[0].frames) == [(2, b"from 2"), (3, b"from 3")]

    run(play(test))


def test_large_and_small_frames_arrive_whole_and_in_order(run: Run) -> None:
    sizes = [10, 3_000_000, 20, 30, 70_000, 300_000, 40, 1_000_000, 1_000_001, 65_536, 65_535, 5]

    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1, secret="s"), await nodes.start(2, secret="s")
        one.network.meet([two.endpoint])
        await until(lambda: BrokerId(2) in one.hellos)
        sent: list[bytes] = []
        for number, size in enumerate(sizes):
            sent.append(bytes([number]) * size)
            assert one.network.send(two.number, [sent[-1][:7], sent[-1][7:]])
            # Some leave alone, some with those before them.
            if number % 3 == 0:
                await until(lambda: len(two.frames) == len(sent))
        await until(lambda: len(two.frames) == len(sent))
        assert [frame for _, frame in two.frames] == sent

    run(play(test))


def test_one_connection_remains_when_both_dial_at_once(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        for attempt in range(5):
            one = await nodes.start(1, directory=f"one-{attempt}")
            two = await nodes.start(2, directory=f"two-{attempt}")
            one.network.meet([two.endpoint])
            two.network.meet([one.endpoint])
            await until(
                lambda one=one, two=two: one.hellos and two.hellos and is_at_rest(one, two)  # type: ignore[misc]
            )
            for node in (one, two):
                assert len(node.hellos) == 1
                assert len(node.network._connections) == 1
                assert len(node.events) <= 3
            await one.network.close()
            await two.network.close()

    run(play(test))


def test_large_frames_arrive_whole_and_in_order(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos and two.hellos)
        sizes = [3_000_000, 0, 10, 70_000, 5_000_000, 1]
        for number, size in enumerate(sizes):
            half = size // 2
            pieces = [bytes([number]) * half, memoryview(bytes([number]) * (size - half))]
            assert one.network.send(BrokerId(2), pieces)
        expected = [(1, bytes([number]) * size) for number, size in enumerate(sizes) if size]
        await until(lambda: len(two.frames) == len(expected))
        assert two.frames == expected
        await until(lambda: one.network.queued_bytes(BrokerId(2)) == 0)

    run(play(test))


def test_a_dead_process_is_told_from_a_lost_connection(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one, two, three = [await nodes.start(number) for number in (1, 2, 3)]
        one.network.set_peers({BrokerId(2): two.endpoint, BrokerId(3): three.endpoint})
        await until(lambda: len(one.hellos) == 2)
        two.network.drop(BrokerId(1), "a test")
        await until(lambda: one.events[2:] == ["-2", "+2"])
        await three.network.close()
        await until(lambda: one.events[4:] == ["-3", "died 3"])

    run(play(test))


def test_a_node_that_comes_back_is_found_again(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one = await nodes.start(1)
        two = await nodes.start(2)
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos)
        await two.network.close()
        await until(lambda: not one.hellos)
        again = Node(2, secret=None, directory="directory-2", incarnation=2)
        nodes.all.append(again)
        endpoint = await again.network.bind(two.endpoint)
        hello = PeerHello(PEER_VERSION, "", BrokerId(2), DirectoryId("directory-2"), 2, endpoint)
        again.network.start(hello, again)
        await until(lambda: one.hellos)
        assert one.hellos[BrokerId(2)].incarnation == 2

    run(play(test))


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ({"secret": "a"}, {"secret": "b"}, "The peer secrets of node 2 and node 1 differ."),
        ({"cluster": "red"}, {"cluster": "blue"}, "belongs to cluster red"),
    ],
)
def test_a_refusal_is_told_to_both_sides_once(
    first: dict[str, str],
    second: dict[str, str],
    sentence: str,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1, **first), await nodes.start(2, **second)  # type: ignore[arg-type]
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: len(caplog.messages) >= 2)
        await asyncio.sleep(0.4)
        assert not one.hellos
        assert not two.hellos
        refusals = [node.network.refusal for node in (one, two) if node.network.refusal]
        assert len(refusals) == 1
        assert sentence in refusals[0]

    with caplog.at_level(logging.WARNING):
        run(play(test))
    told = [message for message in caplog.messages if sentence in message]
    assert len(told) == 2
    assert any("refuses this node" in message for message in told)
    assert any("is refused" in message for message in told)


def test_a_number_that_is_connected_under_another_directory_is_refused(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        impostor = await nodes.start(2, directory="other")
        two.network.meet([one.endpoint])
        await until(lambda: one.hellos)
        impostor.network.meet([one.endpoint])
        await until(lambda: "another data directory" in caplog.text)
        assert one.hellos[BrokerId(2)].directory == "directory-2"
        assert one.events == ["+2"]
        await two.network.close()
        await until(lambda: one.hellos and one.hellos[BrokerId(2)].directory == "other")

    run(play(test))


def test_a_later_incarnation_replaces_an_earlier_one(run: Run) -> None:
    """A node that was cut off without a word and started again need not wait for the silence."""

    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2, incarnation=1)
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos)
        later = await nodes.start(2, incarnation=2)
        later.network.meet([one.endpoint])
        await until(lambda: one.hellos and one.hellos[BrokerId(2)].incarnation == 2)
        assert one.events[:3] == ["+2", "-2", "+2"]

    run(play(test))


def test_a_silent_peer_is_dropped_and_a_live_one_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_network, "CHECK_SECONDS", 0.02)

    async def test(nodes: Nodes) -> None:
        one, two, three = [await nodes.start(number) for number in (1, 2, 3)]
        one.network.set_peers({BrokerId(2): two.endpoint, BrokerId(3): three.endpoint})
        await until(lambda: len(one.hellos) == 2)
        # From now on node 2 says nothing any more, but its sockets stay open.
        assert two.network._check is not None
        two.network._check.cancel()
        await until(lambda: "-2" in one.events)
        await asyncio.sleep(0.3)
        assert "-3" not in one.events

    run(play(test))


def test_a_peer_that_takes_nothing_can_not_fill_our_memory(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "PEER_QUEUE_BYTES_MAX", 8_000_000)

    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos and two.hellos)
        transport = two.network._connections[BrokerId(1)]._transport
        assert transport is not None
        transport.pause_reading()
        piece = bytes(1_000_000)
        for _ in range(100):
            queued = one.network.queued_bytes(BrokerId(2))
            if not one.network.send(BrokerId(2), [piece]):
                break
            assert queued <= 8_000_000
            await asyncio.sleep(0)
        else:
            pytest.fail("everything was queued")
        assert "-2" in one.events
        assert one.network.queued_bytes(BrokerId(2)) == 0

    run(play(test))


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n\r\n", MAGIC + b"\xff\xff\xff\xff", MAGIC])
def test_strangers_are_turned_away(
    opening: bytes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connection, "HANDSHAKE_SECONDS_MAX", 0.2)

    async def test(nodes: Nodes) -> None:
        one = await nodes.start(1)
        reader, writer = await asyncio.open_connection(*one.endpoint)
        writer.write(opening)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            assert not one.hellos
        writer.close()
        assert not one.hellos

    run(play(test))


def test_strangers_can_not_take_all_descriptors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_network, "HANDSHAKES_MAX", 3)

    async def test(nodes: Nodes) -> None:
        one = await nodes.start(1)
        writers = [(await asyncio.open_connection(*one.endpoint))[1] for _ in range(3)]
        await until(lambda: len(one.network._pending) == 3)
        reader, writer = await asyncio.open_connection(*one.endpoint)
        assert await reader.read() == b""
        for each in (*writers, writer):
            each.close()

    run(play(test))


def test_a_node_that_is_told_its_own_address_stops_dialling_it(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one = await nodes.start(1)
        one.network.meet([one.endpoint])
        await until(lambda: one.endpoint in one.network._own_endpoints)
        assert not one.network._dialers
        assert one.events == []

    run(play(test))


def test_the_cluster_that_is_joined_later_is_told_to_those_who_come_later(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        one.network.set_cluster("blue")
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: two.hellos)
        assert two.hellos[BrokerId(1)].cluster_id == "blue"

    run(play(test))


def test_attempts_that_came_to_nothing_leave_nothing_behind(run: Run) -> None:
    """Each has a large buffer, and a node may be away for days."""

    async def test(nodes: Nodes) -> None:
        one = await nodes.start(1)
        made: list[ReferenceType[PeerConnection]] = []
        make = one.network._make_dialled

        def note(dialer: PeerDialer) -> PeerConnection:
            connection = make(dialer)
            made.append(ref(connection))
            return connection

        one.network._make_dialled = note  # type: ignore[method-assign]
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            one.network.set_peers({BrokerId(2): Endpoint(*nobody.getsockname())})
            await until(lambda: len(made) > 3)
            # Only an attempt that is under way.
            assert len(one.network._dialer_of) <= 1
            assert sum(each() is not None for each in made) <= 1

    run(play(test))


def test_connections_that_were_refused_leave_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the garbage collector, which comes seldom to a node that is idle."""
    made: list[ReferenceType[PeerConnection]] = []

    def note(network: TcpPeerNetwork, *, is_dialer: bool) -> PeerConnection:
        connection = PeerConnection(network, is_dialer=is_dialer)
        made.append(ref(connection))
        return connection

    monkeypatch.setattr(peer_network, "PeerConnection", note)

    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1, secret="a"), await nodes.start(2, secret="b")
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: len(made) >= 6)
        await until(lambda: sum(each() is not None for each in made) <= 2)

    gc.disable()
    try:
        run(play(test))
    finally:
        gc.enable()


def test_a_lost_peer_that_lives_and_refuses_is_not_dialled_without_a_pause(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_dialer, "DYING_RETRIES_MAX", 3)

    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        accepted = 0
        accept = two.network._tcp._on_accept

        def count(sock: socket.socket, remote: Endpoint) -> None:
            nonlocal accepted
            accepted += 1
            accept(sock, remote)

        two.network._tcp._on_accept = count
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos and two.hellos)
        one.network.set_cluster("red")
        two.network.set_cluster("blue")
        two.network.drop(BrokerId(1), "a test")
        await until(lambda: accepted > 2)
        await asyncio.sleep(1)
        # The first, the one at once, those that are quick, and very few in this second.
        assert accepted <= 1 + 1 + 3 + 3

    run(play(test))


def test_a_peer_that_is_no_longer_wanted_is_not_dialled_again(run: Run) -> None:
    async def test(nodes: Nodes) -> None:
        one, two = await nodes.start(1), await nodes.start(2)
        one.network.set_peers({BrokerId(2): two.endpoint})
        await until(lambda: one.hellos)
        one.network.set_peers({})
        one.network.drop(BrokerId(2), "a test")
        await asyncio.sleep(0.3)
        assert not one.hellos
        assert not one.network.send(BrokerId(2), [b"x"])

    run(play(test))
