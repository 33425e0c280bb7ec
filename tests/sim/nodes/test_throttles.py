"""Proves that a throttle which operators set bounds the move of a replica, and nobody else."""

from penstock.model.ids import BrokerId, PartitionId
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.cluster import LISTED, throttling, try_to_change, try_to_move
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import Run
from tests.sim.replicas.history import require

SEEDS = range(701, 704)
OPERATIONS = 40
RATE = 10_000
FILLED_BYTES = 10 * RATE
VALUE_BYTES = 500
# After so long a replica that lacks what was filled in counts as behind.
OLD_AFTER_S = 3.0
MOVE_S_MAX = 60.0


class Moved(Run):
    """No faults. One partition is filled and moved to a node that has none of it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance, self.moves_replicas = 0.0, False
        self.is_throttled = self.rots = False
        self.switch.become_reliable()
        self.move_s = 0.0

    def _make_nodes(self) -> list[SimulatedNode]:
        nodes = super()._make_nodes()
        while len(nodes) == LISTED:
            nodes = super()._make_nodes()
        return nodes

    def _execute(self) -> RunReport:
        for node in self.nodes:
            node.start()
        self._make_data_topic()
        key = next(iter(self.producers_of))
        leader = self._leader(key)
        self._fill(leader)
        self.world.run_for(OLD_AFTER_S)
        node = self.nodes[0]
        node.ask(try_to_change(node, throttling(str(RATE), "*")))
        (target,) = (each.node for each in self.nodes if each.replica(key) is None)
        numbers = [leader.id.node, target, self._other(leader.id.node, target)]
        node.ask(try_to_move(node, numbers, key.partition))
        began = self.world.now
        moved = self.world.run_until(lambda: self._is_placed(key, numbers), MOVE_S_MAX)
        require(moved, f"the move does not end: {self._describe()}")
        self.move_s = self.world.now - began
        require(self._is_work_done(), "a producer waited for the move")
        self._heal()
        self._check()
        return self._report()

    def _leader(self, key: PartitionId) -> Replica:
        found = [
            replica
            for node in self.nodes
            if (replica := node.replica(key)) is not None and replica.is_settled
        ]
        (leader,) = found
        return leader

    def _other(self, *numbers: BrokerId) -> BrokerId:
        return next(node.node for node in self.nodes if node.node not in numbers)

    def _fill(self, leader: Replica) -> None:
        values = [b"x" * VALUE_BYTES] * (FILLED_BYTES // VALUE_BYTES)
        for value in values:
            leader.append(build_batch([Record(timestamp_ms=EPOCH_MS, key=None, value=value)]))

    def _is_placed(self, key: PartitionId, numbers: list[BrokerId]) -> bool:
        leader = self._leader(key)
        voters = {replica.node for replica in leader.membership.voters}
        return voters == set(numbers) and leader.is_reconciled


def test_a_move_takes_as_long_as_its_throttle_demands() -> None:
    for seed in SEEDS:
        run = Moved(seed)
        with own_garbage_only():
            run.execute()
        expected_s = FILLED_BYTES / RATE
        assert expected_s / 2 <= run.move_s <= 2 * expected_s
