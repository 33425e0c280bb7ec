"""The nodes of a run, what becomes of their groups, and the faults that strike them."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from penstock.cluster.broker_settings import FOLLOWER_RATE, LEADER_RATE
from penstock.cluster.config_decisions import (
    ALL_BROKERS,
    BrokerResource,
    Edit,
    Resource,
    TopicResource,
)
from penstock.cluster.config_decisions import Operation as Op
from penstock.cluster.topic_settings import THROTTLED_FOLLOWERS, THROTTLED_LEADERS
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, PartitionId, TopicId
from penstock.raft.settings import RaftSettings
from penstock.replication.replica import Replica
from tests.sim.machine.disk_faults import fail_syncs, fill_disk, hang_disk
from tests.sim.machine.process import Machine
from tests.sim.machine.wire import Switch
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode, peer_endpoint
from tests.sim.nodes.states import States
from tests.sim.replicas.history import History

LISTED = 3
DATA = "data"
# Of throttles, in bytes per second.
RATES = ("1000", "1000", "20000")
# In a run in which a disk rots, and in one in which replicas move, at every step.
ROT_CHANCE = 0.1
MOVE_CHANCE = 0.15
# Of share coordinators: their logs are shortened when they hold more records.
STATE_RECORDS_MAX = 40


class Cluster:
    def __init__(self, seed: int, broker: Mapping[str, str]) -> None:
        """`broker` holds the settings of all nodes."""
        self.seed = seed
        self.broker = broker
        self.random = Random(seed)
        self.world = World(self.random)
        self.switch = Switch(self.world)
        self.histories: dict[PartitionId, History] = {}
        self.states = States()
        self.snapshot_records = self.random.choice((1, 3, 10))
        self.fault_chance = self.random.choice((0.02, 0.1, 0.3))
        self.moves_replicas = self.random.random() < 0.6
        self.rots = self.random.random() < 0.3
        # Of its own, so that it changes nothing else.
        self.throttles = Random(f"throttles of {seed}")
        self.is_throttled = self.throttles.random() < 0.3
        self.moves = self.disks_replaced = self.bits_flipped = 0
        # The one whose disk nobody can trust.
        self.damaged: SimulatedNode | None = None
        self.nodes = self._make_nodes()

    def _make_nodes(self) -> list[SimulatedNode]:
        listed = {number: peer_endpoint(number) for number in map(BrokerId, range(1, LISTED + 1))}
        raft = RaftSettings(
            heartbeats_by_host=True,
            append_bytes_max=self.random.choice((500, 1 << 20)),
            snapshot_wait_rounds_max=2,
        )
        nodes = [self._make_node(number, raft, cluster=listed) for number in listed]
        if self.random.random() < 0.5:
            joiner = BrokerId(LISTED + 1)
            nodes.append(self._make_node(joiner, raft, join=peer_endpoint(BrokerId(1))))
        for node in nodes:
            node.on_deleted = self._deleted
            node.before_end = self.states.note_snapshots
        return nodes

    def _make_node(self, number: BrokerId, raft: RaftSettings, **how: object) -> SimulatedNode:
        return SimulatedNode(
            Machine(self.world, self.switch, number),
            cluster=how.get("cluster", {}),  # type: ignore[arg-type]
            join=how.get("join"),  # type: ignore[arg-type]
            raft=raft,
            snapshot_records=self.snapshot_records,
            history_of=self._history_of,
            broker=self.broker,
            state_records_max=STATE_RECORDS_MAX,
        )

    def _history_of(self, replica: Replica) -> History:
        history = self.histories.get(replica.key)
        if history is None:
            history = History(compacts=replica.config.cleanup_compact)
            self.histories[replica.key] = history
        return history

    def _deleted(self, topic_id: TopicId) -> None:
        for key, history in self.histories.items():
            if key.topic_id == topic_id:
                history.is_over = True

    # Faults

    def _disturb_some(self, fault_chance: float) -> None:
        if self.random.random() < fault_chance:
            self._disturb()
        self._let_rot()
        if self.moves_replicas and self.random.random() < MOVE_CHANCE:
            self._move()
        if self.is_throttled and self.throttles.random() < 0.2:
            self._throttle()

    def _disturb(self) -> None:
        running = [node for node in self.nodes if node.is_up]
        kind = self.random.randrange(16)
        if kind <= 3:
            self._restart_all()
        elif kind == 4:
            self.switch.heal()
        elif kind == 5:
            self.switch.break_some()
        elif kind == 6:
            numbers = [node.node for node in self.nodes]
            side = {self._leads_something() or self.random.choice(numbers)}
            self.switch.partition(numbers, side, one_way=self.random.random() < 0.4)
        elif running:
            self._hit(self.random.choice(running), kind)

    def _leads_something(self) -> BrokerId | None:
        """Every other time one that leads, so that two take themselves for the leader for a while:
        it takes the one that is cut off longer to notice than the others to elect another."""
        leading = [
            node.node
            for node in self.nodes
            if node.is_responsive and any(replica.is_leader for replica in node.replicas())
        ]
        return self.random.choice(leading) if leading and self.random.random() < 0.5 else None

    def _hit(self, victim: SimulatedNode, kind: int) -> None:
        process = victim.machine.process
        assert process is not None
        if kind <= 8:
            end = victim.stop if self.random.random() < 0.3 else victim.crash
            end(lost_power=self.random.random() < 0.4)
        elif kind == 9:
            steps, lost = self.random.randint(0, 8), self.random.random() < 0.5
            victim.machine.crash_in_a_write(steps, lost_power=lost)
        elif kind == 10:
            process.loop.pause(self.random.uniform(0.2, 4.0))
        elif kind == 11:
            process.clock.skew_ms += self.random.choice((-3_600_000, -500, 500, 3_600_000))
        elif kind == 13:
            fill_disk(victim.machine)
        elif kind == 14:
            fail_syncs(victim)
        elif kind == 15:
            hang_disk(victim.machine)
        elif len(self.nodes) > LISTED and self._may_lose_a_disk():
            victim.crash(lost_power=False)
            victim.machine.replace_drive()
            self.disks_replaced += 1
            victim.start()

    def _let_rot(self) -> None:
        """A bit flips while a node is down. The node starts again, or says why it can't; what it
        says is not acted upon before the end."""
        if not self.rots or self.random.random() >= ROT_CHANCE or not self._may_lose_a_disk():
            return
        victim = self.random.choice(self.nodes)
        victim.crash(lost_power=self.random.random() < 0.4)
        if victim.rot():
            self.bits_flipped += 1
            self.damaged = victim
        if self.random.random() < 0.5:
            victim.start()

    def _may_lose_a_disk(self) -> bool:
        """Only one at a time, and only once every group has done with the one before."""
        if self.damaged is not None or not all(node.is_registered for node in self.nodes):
            return False
        known = {node.id for node in self.nodes}
        return all(
            replica.membership.members <= known and len(replica.membership.voters) >= LISTED
            for node in self.nodes
            for replica in node.replicas()
        )

    def _move(self) -> None:
        nodes = [node for node in self.nodes if node.is_responsive]
        # What a group has must not leave whole disks for one that nobody can trust.
        if not nodes or self.damaged is not None:
            return
        node = self.random.choice(nodes)
        numbers = self.random.sample([node.node for node in self.nodes], LISTED)
        assert node.machine.process is not None
        self.moves += 1
        node.machine.process.spawn(try_to_move(node, numbers, self.random.randrange(2)))

    def _throttle(self) -> None:
        """Some rate, which is low but not so low that nobody would catch up in time."""
        nodes = [node for node in self.nodes if node.is_responsive]
        if nodes:
            node = self.throttles.choice(nodes)
            assert node.machine.process is not None
            changes = throttling(
                self.throttles.choice(RATES), self.throttles.choice(("", "*", "*", "*"))
            )
            node.machine.process.spawn(try_to_change(node, changes))

    # The end of faults

    def _leave_in_peace(self) -> None:
        self.switch.heal()
        self._restart_all()
        for node in self.nodes:
            node.machine.disk_hangs_until = 0.0
            self._set_clock_right(node)

    def _restart_all(self) -> None:
        for node in self.nodes:
            if not node.is_up:
                node.start()

    def _set_clock_right(self, node: SimulatedNode, skew_ms: int = 0) -> None:
        """One that is an hour late twice over takes every record for one of the future."""
        if node.machine.process is not None:
            node.machine.process.clock.skew_ms = skew_ms


async def try_to_move(node: SimulatedNode, numbers: list[BrokerId], partition: int) -> None:
    assert node.server is not None
    try:
        await node.server.services.reassignments.reassign(DATA, partition, numbers)
    except Refused:
        return


def throttling(rate: str, replicas: str) -> list[tuple[Resource, list[Edit]]]:
    lists = [Edit(name, Op.SET, replicas) for name in (THROTTLED_LEADERS, THROTTLED_FOLLOWERS)]
    rates = [Edit(name, Op.SET, rate) for name in (LEADER_RATE, FOLLOWER_RATE)]
    return [(TopicResource(DATA), lists), (BrokerResource(ALL_BROKERS), rates)]


async def try_to_change(node: SimulatedNode, changes: list[tuple[Resource, list[Edit]]]) -> None:
    assert node.server is not None
    with suppress(Refused):
        await node.server.services.configs.edit(changes)
