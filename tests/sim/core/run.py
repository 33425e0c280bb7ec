"""One run: clients, faults and changes of membership at random; then healing, and equality."""

from dataclasses import dataclass
from random import Random

from penstock.model.ids import NO_END
from penstock.raft.entries import EntryKind
from penstock.raft.membership import Change, ChangeKind
from penstock.raft.ready import Role
from tests.sim.core.cluster import TICK, Cluster
from tests.sim.core.invariants import require
from tests.sim.core.replica import SimulatedReplica

HEALING_TICKS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    seed: int
    steps: int
    committed: int
    acknowledged: int
    reads: int
    membership_changes: int
    tails_lost: int
    stuck: int


class Run:
    def __init__(self, seed: int, operations: int) -> None:
        self.seed = seed
        self.operations = operations
        self.random = Random(seed)
        self.cluster = Cluster(self.random, voters=self.random.choice((3, 3, 3, 5)), spares=1)
        self.fault_chance = self.random.choice((0.05, 0.2, 0.4))
        self.changes = self.random.random() < 0.6
        # Half of the runs have disks that rot.
        self.rots = self.random.random() < 0.5
        self.tails_lost = 0
        self.is_stuck = False

    def execute(self) -> RunReport:
        cluster = self.cluster
        cluster.alive()[0].node.campaign()  # type: ignore[union-attr]
        cluster.settle(cluster.alive()[0])
        for operation in range(self.operations):
            cluster.run_until(cluster.now + self.random.randint(1, 40))
            self._ask(operation)
            if self.random.random() < self.fault_chance:
                self._disturb()
            if self.changes and self.random.random() < 0.1:
                self._change()
        self._heal()
        return self._report()

    def _ask(self, operation: int) -> None:
        alive = [
            replica for replica in self.cluster.alive() if replica.paused_until <= self.cluster.now
        ]
        if not alive:
            return
        # A client asks any node that says it leads, even one that is cut off and out of date.
        leaders = [replica for replica in alive if _leads(replica)]
        replica = self.random.choice(leaders or alive)
        if self.random.random() < 0.15:
            self.cluster.read(replica, ("read", operation))
        else:
            for part in range(self.random.choice((1, 1, 1, 3))):
                self.cluster.propose(replica, (operation, part))
            if self.random.random() < 0.05:
                self.cluster.move_log_start(replica, operation)

    def _disturb(self) -> None:
        kind = self.random.randrange(16)
        alive = self.cluster.alive()
        if kind <= 2 and alive:
            victim = self._victim(alive)
            self._write_in_vain(victim)
            self.cluster.crash(victim)
            if self.random.random() < 0.5:
                self.cluster.tell_of_death(victim)
        elif kind <= 5:
            self._restart_all()
        elif kind == 6:
            self._cut()
        elif kind == 7:
            self._heal_and_hit(alive)
        elif kind == 8 and alive:
            self.cluster.pause(self._victim(alive), self.random.randint(50, 300))
        elif kind in (9, 12, 13) and alive:
            for replica in self.random.sample(alive, self.random.randint(1, len(alive))):
                replica.compact()
        elif kind == 10 and alive:
            self._transfer(alive)
        elif kind == 14 and alive:
            self._resign(alive)
        elif kind == 11 and self.changes:
            self._lose_a_directory()
        elif kind == 15 and alive and self.rots:
            self._lose_tails(alive)

    def _lose_tails(self, alive: list[SimulatedReplica]) -> None:
        """Bits flip at the ends of some logs while their nodes are down. Who is in doubt needs the
        votes of all, so nobody's directory is lost at the same time."""
        if self._has_lost_directories():
            return
        for victim in self.random.sample(alive, self.random.choice((1, 1, 2, len(alive)))):
            self.cluster.crash(victim)
            self.tails_lost += victim.lose_tail()
            if self.random.random() < 0.7:
                self.cluster.start(victim)

    def _heal_and_hit(self, alive: list[SimulatedReplica]) -> None:
        """One who was cut off meets the others just when their leader is gone."""
        self.cluster.network.heal()
        if alive and self.random.random() < 0.5:
            self.cluster.crash(self._victim(alive))

    def _victim(self, alive: list[SimulatedReplica]) -> SimulatedReplica:
        """Leaders are hit more often than others: there is more to lose."""
        leaders = [replica for replica in alive if _leads(replica)]
        return self.random.choice(leaders if leaders and self.random.random() < 0.5 else alive)

    def _write_in_vain(self, victim: SimulatedReplica) -> None:
        """Clients of one who is about to fail go on writing what few or none will receive."""
        for part in range(self.random.randint(0, 6)):
            self.cluster.propose(victim, ("in vain", self.cluster.now, part))

    def _cut(self) -> None:
        nodes, alive = self.cluster.nodes, self.cluster.alive()
        if alive and self.random.random() < 0.5:
            victim = self._victim(alive)
            self.cluster.network.partition(nodes, {victim.id.node})
            self._write_in_vain(victim)
        else:
            side = set(self.random.sample(nodes, self.random.randint(1, len(nodes) // 2)))
            self.cluster.network.partition(nodes, side)

    def _restart_all(self) -> None:
        for replica in list(self.cluster.replicas.values()):
            if replica.node is None:
                self.cluster.start(replica)

    def _transfer(self, alive: list[SimulatedReplica]) -> None:
        for replica in alive:
            if replica.node is not None and _leads(replica):
                replica.node.transfer(self.random.choice(alive).id)
                self.cluster.settle(replica)

    def _resign(self, alive: list[SimulatedReplica]) -> None:
        for replica in alive:
            if replica.node is not None:
                replica.node.resign()
                self.cluster.settle(replica)

    def _lose_a_directory(self) -> None:
        """Raft survives the loss of one of three disks, not of two: one at a time, replaced."""
        memberships = [replica.node.membership for replica in self.cluster.alive() if replica.node]
        everyone_up = len(memberships) == len(self.cluster.replicas)
        in_doubt = [r for r in self.cluster.replicas.values() if r.lost_end != NO_END]
        if (
            everyone_up
            and not in_doubt
            and not self._has_lost_directories()
            and all(len(membership.voters) >= 3 for membership in memberships)
        ):
            self.cluster.replace_directory(self.random.choice(self.cluster.alive()))

    def _has_lost_directories(self) -> bool:
        """Whether somebody still counts on a directory that is gone."""
        nodes = [replica.node for replica in self.cluster.alive() if replica.node is not None]
        is_everyone_up = len(nodes) == len(self.cluster.replicas)
        return not is_everyone_up or any(
            self.cluster.lost_identities(node.membership) for node in nodes
        )

    def _change(self) -> None:
        for replica in self.cluster.alive():
            if replica.node is not None and _leads(replica):
                change = self._choose_change(replica)
                if change is not None:
                    replica.node.change_membership(change)
                    self.cluster.settle(replica)
                    return

    def _choose_change(self, replica: SimulatedReplica) -> Change | None:
        assert replica.node is not None
        membership = replica.node.membership
        lost = self.cluster.lost_identities(membership)
        if lost:
            return Change(ChangeKind.REMOVE, lost[0])
        outside = sorted(self.cluster.replicas.keys() - membership.members)
        choices = [Change(ChangeKind.ADD_LEARNER, name) for name in outside]
        choices += [Change(ChangeKind.PROMOTE, name) for name in sorted(membership.learners)] * 2
        if len(membership.voters) > 2:
            choices += [Change(ChangeKind.REMOVE, name) for name in sorted(membership.members)]
        return self.random.choice(choices) if choices else None

    def _heal(self) -> None:
        """With everyone back and the network whole, the group must work and become equal."""
        cluster = self.cluster
        cluster.network.become_reliable()
        self._restart_all()
        for attempt in range(HEALING_TICKS_MAX):
            cluster.run_until(cluster.now + TICK)
            if attempt % 10 == 9:
                leaders = [replica for replica in cluster.alive() if _leads(replica)]
                if leaders and self._is_equal():
                    self._check_clients()
                    return
                for replica in leaders[:1]:
                    cluster.propose(replica, ("healing", attempt))
                if not leaders and self._must_stop():
                    self.is_stuck = True
                    return
        require(False, "the group did not recover after healing")

    def _must_stop(self) -> bool:
        """Whether the group says that something committed may be missing; it must be right."""
        stuck = {r.node.stuck for r in self.cluster.alive() if r.node is not None and r.node.stuck}
        for found in stuck:
            loser = self.cluster.replicas[found.loser]
            require(loser.lost_end == found.needed, f"{found} is not what {loser.id} lost")
            for replica in self.cluster.alive():
                assert replica.node is not None
                require(
                    replica.id not in replica.node.membership.voters
                    or replica.node._core.log_end < found.needed,
                    f"{replica.id} has what is missing: {found}",
                )
        return bool(stuck)

    def _is_equal(self) -> bool:
        """A leader, an entry of its term committed, and every member at the same place."""
        cluster = self.cluster
        leader = max(
            (replica.node for replica in cluster.alive() if replica.node and _leads(replica)),
            key=lambda node: node.term,
        )
        members = leader.membership.members
        if not leader.has_committed_in_term or leader.commit_index != leader.last_index:
            return False
        return all(
            replica.node is not None
            and replica.node.commit_index == leader.commit_index
            and replica.applied_index == leader.commit_index
            and replica.node.last_index == leader.last_index
            and replica.node.membership == leader.membership
            for name, replica in cluster.replicas.items()
            if name in members
        )

    def _check_clients(self) -> None:
        """Everything that was acknowledged is there, once, and where it was said to be."""
        committed = self.cluster.invariants.committed
        payloads = [
            entry.payload
            for index, entry in enumerate(committed, start=1)
            if entry.kind is EntryKind.DATA and entry.last_index == index
        ]
        require(len(payloads) == len(set(payloads)), "an operation was committed twice")
        for operation, index in self.cluster.acknowledged.items():
            require(
                index <= len(committed) and committed[index - 1].payload == operation,
                f"acknowledged operation {operation} is not at index {index}",
            )

    def _report(self) -> RunReport:
        committed = self.cluster.invariants.committed
        return RunReport(
            seed=self.seed,
            steps=self.cluster.steps,
            committed=len(committed),
            acknowledged=len(self.cluster.acknowledged),
            reads=self.cluster.reads_served,
            membership_changes=sum(entry.kind is EntryKind.MEMBERSHIP for entry in committed),
            tails_lost=self.tails_lost,
            stuck=self.is_stuck,
        )


def _leads(replica: SimulatedReplica) -> bool:
    return replica.node is not None and replica.node.role is Role.LEADER


def run_seed(seed: int, operations: int = 100) -> RunReport:
    """The same seed gives the same run, and so the same report or the same failure."""
    return Run(seed, operations).execute()
