"""The simulated network does what TCP can do: late, stalled, broken, never out of order."""

from random import Random

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId
from penstock.model.peers import PEER_VERSION, PeerHello
from tests.sim.machine.process import Machine
from tests.sim.machine.wire import STALL_S_MAX, Switch
from tests.sim.machine.world import World

ONE, TWO = BrokerId(1), BrokerId(2)


def endpoint(node: BrokerId) -> Endpoint:
    return Endpoint(f"node-{node}", 9095)


class Listener:
    def __init__(self) -> None:
        self.seen: list[object] = []
        self.kept: list[memoryview] = []

    def connected(self, hello: PeerHello) -> None:
        self.seen.append(("connected", hello.incarnation))

    def disconnected(self, node: BrokerId, *, process_died: bool) -> None:
        self.seen.append("died" if process_died else "disconnected")

    def received(self, node: BrokerId, frame: memoryview) -> None:
        self.seen.append(bytes(frame))


class Pair:
    def __init__(self, seed: int = 1) -> None:
        self.world = World(Random(seed))
        self.switch = Switch(self.world)
        self.machines = {node: Machine(self.world, self.switch, node) for node in (ONE, TWO)}
        self.listeners: dict[BrokerId, Listener] = {}
        self.incarnation = 0
        for node in (ONE, TWO):
            self.start(node)
        self.world.run_for(1)

    def start(self, node: BrokerId, cluster: str = "") -> None:
        self.incarnation += 1
        listener = self.listeners[node] = Listener()
        network = self.machines[node].start().network
        hello = PeerHello(
            PEER_VERSION, cluster, node, DirectoryId("d"), self.incarnation, endpoint(node)
        )
        network.start(hello, listener)
        network.set_peers({other: endpoint(other) for other in (ONE, TWO)})

    def send(self, node: BrokerId, frame: bytes) -> bool:
        process = self.machines[node].process
        assert process is not None
        return process.network.send(ONE if node == TWO else TWO, [frame])

    def seen(self, node: BrokerId) -> list[object]:
        return self.listeners[node].seen


def test_two_processes_meet_once_and_frames_arrive_in_order() -> None:
    for seed in range(20):
        pair = Pair(seed)
        frames = [bytes([number]) for number in range(50)]
        for frame in frames:
            assert pair.send(ONE, frame)
        pair.world.run_for(5)
        assert pair.seen(TWO) == [("connected", 1), *frames]
        assert pair.seen(ONE) == [("connected", 2)]


def test_a_short_cut_only_delays_and_a_long_one_breaks() -> None:
    pair = Pair()
    pair.switch.partition([ONE, TWO], {ONE}, one_way=True)
    assert pair.send(ONE, b"held back")
    assert pair.send(TWO, b"the other way")
    pair.world.run_for(0.3)
    assert pair.seen(TWO)[1:] == []
    assert pair.seen(ONE)[1:] == [b"the other way"]
    pair.switch.heal()
    pair.world.run_for(0.3)
    assert pair.seen(TWO)[1:] == [b"held back"]
    pair.switch.partition([ONE, TWO], {ONE}, one_way=False)
    pair.send(ONE, b"lost")
    pair.world.run_for(STALL_S_MAX + 1)
    assert pair.seen(TWO)[2:] == ["disconnected"]
    assert not pair.send(ONE, b"nobody there")
    pair.switch.heal()
    pair.world.run_for(2)
    assert pair.seen(TWO)[3:] == [("connected", 1)]


def test_a_kill_is_noticed_and_known_as_one() -> None:
    pair = Pair()
    pair.machines[ONE].crash(lost_power=False)
    pair.world.run_for(1)
    assert pair.seen(TWO)[1:] == ["disconnected", "died"]
    pair.start(ONE)
    pair.world.run_for(1)
    assert pair.seen(TWO)[3:] == [("connected", 3)]


def test_a_power_loss_says_nothing_until_the_machine_is_back() -> None:
    pair = Pair()
    pair.machines[ONE].crash(lost_power=True)
    assert pair.send(TWO, b"into the void")
    pair.start(ONE)
    pair.world.run_for(2)
    assert pair.seen(TWO)[1:] == ["disconnected", ("connected", 3)]
    assert pair.seen(ONE) == [("connected", 2)]


def test_nodes_of_different_clusters_do_not_meet() -> None:
    pair = Pair()
    for node, cluster in ((ONE, "a"), (TWO, "b")):
        pair.machines[node].crash(lost_power=False)
        pair.world.run_for(1)
        pair.start(node, cluster)
    pair.world.run_for(5)
    assert pair.seen(ONE) == []


def test_a_receiver_that_keeps_a_frame_sees_it_spoilt() -> None:
    pair = Pair()
    kept: list[memoryview] = []
    pair.listeners[TWO].received = lambda _, frame: kept.append(  # type: ignore[method-assign]
        memoryview(frame.obj)  # type: ignore[arg-type]
    )
    pair.send(ONE, b"for a moment")
    pair.world.run_for(1)
    assert bytes(kept[0]) == b"\xee" * len(b"for a moment")
