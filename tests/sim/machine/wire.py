"""The network between simulated processes: ordered connections that delay, stall and break.

It does what TCP can do to a program, and no more: a frame arrives once and in its place, or the
connection ends. A direction that is cut holds back what is sent; the connection lives through a
short cut and breaks in a long one. A process that is killed says good-bye through its kernel; a
machine that loses its power says nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.model.peers import NO_CLUSTER, PeerHello
from penstock.net import peer_buffer
from penstock.net.peer_listener import PeerListener
from penstock.net.reusable_buffers import ReusableBuffers
from tests.sim.machine.loop import SimulatedLoop
from tests.sim.machine.world import World

Piece = bytes | bytearray | memoryview

REDIAL_S = 0.4
# How long a cut, or the silence of a machine without power, lasts before a connection breaks.
STALL_S_MAX = 3.0
QUEUED_BYTES_MAX = 64 * 1024 * 1024


class Pipe:
    """One direction of a connection."""

    def __init__(self, switch: "Switch", source: "SimulatedPeerNetwork", target: "Side") -> None:
        self._switch = switch
        self._source = source.node
        self._target = target
        self._last_arrival = 0.0
        self._stalled: list[Sequence[Piece]] = []
        self.stalled_bytes = 0

    def send(self, pieces: Sequence[Piece]) -> None:
        if self._stalled or (self._switch.cut and self._is_cut()):
            self._stalled.append(pieces)
            self.stalled_bytes += sum(map(len, pieces))
        else:
            self._deliver(pieces)

    def _is_cut(self) -> bool:
        return self._switch.is_cut(self._source, self._target.network.node)

    def resume(self) -> None:
        """The cut is over: what was held back is sent again."""
        stalled, self._stalled, self.stalled_bytes = self._stalled, [], 0
        for pieces in stalled:
            self._deliver(pieces)

    def _deliver(self, pieces: Sequence[Piece]) -> None:
        switch, target = self._switch, self._target
        world = switch.world
        arrival = world.now + switch.delay()
        if arrival > self._last_arrival:
            self._last_arrival = arrival
        world.at(self._last_arrival, target.deliver, target.received, pieces)


class Side:
    """One end of a connection, as its process sees it."""

    def __init__(self, link: "Link", network: "SimulatedPeerNetwork", peer: PeerHello) -> None:
        self.link = link
        self.network = network
        self.peer = peer
        self.pipe: Pipe | None = None
        self.is_open = True
        self._memory = ReusableBuffers(peer_buffer.LARGE_BYTES_KEPT_MAX)
        # Asked for at every frame.
        self.deliver, self.received = network.loop.deliver, self._received

    def tell_connected(self) -> None:
        self.network.in_loop(self._connected)

    def _connected(self) -> None:
        if self.is_open and self.network.listener is not None:
            self.network.sides[self.peer.node] = self
            self.network.listener.connected(self.peer)

    def _received(self, pieces: Sequence[Piece]) -> None:
        if not self.is_open or self.network.listener is None:
            return
        # Joined only now, and spoilt afterwards: a sender that changes what it sent, or a
        # receiver that keeps what it may not, shows.
        buffer = bytearray().join(pieces)
        if len(buffer) >= peer_buffer.LARGE_FRAME_BYTES_MIN:
            self.network.listener.received(self.peer.node, self._lasting(buffer))
        else:
            with memoryview(buffer) as frame:
                self.network.listener.received(self.peer.node, frame)
        buffer[:] = b"\xee" * len(buffer)

    def _lasting(self, buffer: bytearray) -> memoryview:
        """A large frame in memory of its own, which is used again once nobody looks at it."""
        size = len(buffer)
        frame = memoryview(self._memory.take(size))[:size]
        frame[:] = buffer
        return frame.toreadonly()

    def close(self) -> None:
        """The process hears of it when it gets to it; nothing more arrives."""
        if self.is_open:
            self.is_open = False
            self.network.in_loop(self._closed)

    def _closed(self) -> None:
        network = self.network
        if network.sides.get(self.peer.node) is self:
            del network.sides[self.peer.node]
            if network.listener is not None:
                network.listener.disconnected(self.peer.node, process_died=False)
            network.redial(self.peer)


class Link:
    """A connection between two processes."""

    def __init__(
        self, switch: "Switch", one: "SimulatedPeerNetwork", other: "SimulatedPeerNetwork"
    ) -> None:
        self._switch = switch
        self.sides = (Side(self, one, other.hello), Side(self, other, one.hello))
        first, second = self.sides
        first.pipe, second.pipe = Pipe(switch, one, second), Pipe(switch, other, first)
        self.is_open = True

    def involves(self, network: "SimulatedPeerNetwork") -> bool:
        return any(side.network is network for side in self.sides)

    def nodes(self) -> set[BrokerId]:
        return {side.network.node for side in self.sides}

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._switch.links.remove(self)
            for side in self.sides:
                side.close()

    def resume(self) -> None:
        for side in self.sides:
            assert side.pipe is not None
            if not self._switch.is_cut(*self._direction(side)):
                side.pipe.resume()

    def is_stalled(self) -> bool:
        return any(self._switch.is_cut(*self._direction(side)) for side in self.sides)

    def _direction(self, side: Side) -> tuple[BrokerId, BrokerId]:
        return side.network.node, side.peer.node


class Switch:
    """Knows who listens where, which connections there are, and what is cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listening: dict[Endpoint, SimulatedPeerNetwork] = {}
        self.links: list[Link] = []
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self.slow_chance = world.random.choice((0.0, 0.02, 0.1))

    def delay(self) -> float:
        draw = self.world.random.random
        if draw() < self.slow_chance:
            return 0.005 + 0.145 * draw()
        return 0.0001 + 0.0019 * draw()

    # Faults

    def is_cut(self, source: BrokerId, target: BrokerId) -> bool:
        return (source, target) in self.cut

    def partition(self, nodes: Sequence[BrokerId], side: set[BrokerId], *, one_way: bool) -> None:
        """Cuts one side off from the other, or only what that side says."""
        self.cut = {
            (source, target)
            for source in nodes
            for target in nodes
            if (source in side) != (target in side) and (not one_way or source in side)
        }
        for link in list(self.links):
            if link.is_stalled():
                self._break_later(link)
            else:
                link.resume()

    def heal(self) -> None:
        self.cut = set()
        for link in list(self.links):
            link.resume()

    def become_reliable(self) -> None:
        self.slow_chance = 0.0
        self.heal()

    def break_some(self) -> None:
        for link in list(self.links):
            if self.world.random.random() < 0.5:
                link.close()

    def _break_later(self, link: Link) -> None:
        def over() -> None:
            if link.is_open and link.is_stalled():
                link.close()

        self.world.after(self.world.random.uniform(0.5, STALL_S_MAX), over)

    # Processes come and go

    def connect(self, caller: "SimulatedPeerNetwork", endpoint: Endpoint) -> bool | None:
        """True when there is a connection, False when it was refused, None without an answer."""
        called = self.listening.get(endpoint)
        if called is None:
            return False
        if called is caller:
            return True
        if self.is_cut(caller.node, called.node) or self.is_cut(called.node, caller.node):
            return None
        if self._is_wrong(caller.hello, called.hello):
            return None
        if caller.is_connected_to(called):
            # As nearly always: everybody dials everybody now and then.
            return True
        for link in list(self.links):
            if link.nodes() == {caller.node, called.node}:
                if link.involves(caller) and link.involves(called):
                    return True
                # One of them died without a word and came back.
                link.close()
        link = Link(self, caller, called)
        self.links.append(link)
        for side in link.sides:
            side.tell_connected()
        return True

    def _is_wrong(self, one: PeerHello, other: PeerHello) -> bool:
        both_belong = NO_CLUSTER not in (one.cluster_id, other.cluster_id)
        return one.node == other.node or (both_belong and one.cluster_id != other.cluster_id)

    def died(self, network: "SimulatedPeerNetwork", *, silently: bool) -> None:
        for endpoint, listener in list(self.listening.items()):
            if listener is network:
                del self.listening[endpoint]
        for link in list(self.links):
            if link.involves(network):
                if silently:
                    self.world.after(self.world.random.uniform(0.1, STALL_S_MAX), link.close)
                else:
                    self.world.after(self.delay(), link.close)


class SimulatedPeerNetwork:
    """Implements PeerNetwork for one process."""

    def __init__(self, switch: Switch, loop: SimulatedLoop, node: BrokerId) -> None:
        self._switch = switch
        self.loop = loop
        self.node = node
        self.listener: PeerListener | None = None
        self.sides: dict[BrokerId, Side] = {}
        self._peers: dict[BrokerId, Endpoint] = {}
        self._met: list[Endpoint] = []
        self._dialing: set[Endpoint] = set()

    def in_loop(self, action: Callable[..., None], *args: Any) -> None:
        self.loop.call_soon_threadsafe(action, *args)

    def start(self, hello: PeerHello, listener: PeerListener) -> None:
        self.hello = hello
        self.listener = listener
        self._switch.listening[hello.endpoint] = self
        self._dial_all()

    def set_cluster(self, cluster_id: str) -> None:
        self.hello = self.hello._replace(cluster_id=cluster_id)

    def set_peers(self, peers: Mapping[BrokerId, Endpoint]) -> None:
        self._peers = dict(peers)
        self._dial_all()

    def meet(self, endpoints: Sequence[Endpoint]) -> None:
        self._met = list(endpoints)
        self._dial_all()

    def send(self, node: BrokerId, pieces: Sequence[Piece]) -> bool:
        side = self.sides.get(node)
        if side is None or not side.is_open or side.pipe is None:
            return False
        side.pipe.send(tuple(pieces))
        if side.pipe.stalled_bytes > QUEUED_BYTES_MAX:
            self.drop(node, "too much is queued")
        return True

    def is_connected_to(self, other: "SimulatedPeerNetwork") -> bool:
        """Whether both processes know of the same connection that is open."""
        side, facing = self.sides.get(other.node), other.sides.get(self.node)
        return (
            side is not None
            and facing is not None
            and side.is_open
            and facing.is_open
            and side.link is facing.link
        )

    def queued_bytes(self, node: BrokerId) -> int:
        side = self.sides.get(node)
        return 0 if side is None or side.pipe is None else side.pipe.stalled_bytes

    def drop(self, node: BrokerId, why: str) -> None:
        side = self.sides.get(node)
        if side is not None:
            side.link.close()

    # As the real one has it

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    @property
    def refusal(self) -> str | None:
        return None

    async def close(self) -> None:
        self.listener = None
        self._switch.died(self, silently=False)

    # Dialing

    def _targets(self) -> list[Endpoint]:
        if self.listener is None:
            return []
        return [*self._peers.values(), *self._met]

    def _dial_all(self) -> None:
        for endpoint in self._targets():
            if endpoint not in self._dialing and endpoint != self.hello.endpoint:
                self._dialing.add(endpoint)
                self._dial_after(self._switch.delay(), endpoint)

    def _dial_after(self, delay: float, endpoint: Endpoint) -> None:
        self.loop.call_later(delay, self._dial, endpoint)

    def _dial(self, endpoint: Endpoint) -> None:
        """Goes on for as long as the endpoint is wanted: a connection can end at any time."""
        if endpoint not in self._targets():
            self._dialing.discard(endpoint)
            return
        self._switch.connect(self, endpoint)
        self._dial_after(REDIAL_S * self._switch.world.random.uniform(0.5, 1.5), endpoint)

    def redial(self, peer: PeerHello) -> None:
        """At once: a refusal says that the process is gone, not only the connection."""
        self.loop.call_later(2 * self._switch.delay(), self._redial, peer)

    def _redial(self, peer: PeerHello) -> None:
        if self.listener is None or peer.node in self.sides:
            return
        if self._switch.connect(self, peer.endpoint) is False:
            self.listener.disconnected(peer.node, process_died=True)
