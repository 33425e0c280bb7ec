"""Simulated users of locks, and a run of whole nodes with nothing but them and faults.

A user counts its lease from before it asked, on its own clock, a little short: clocks differ. While
it counts itself as the holder, nobody else may become one, and the lease may not be lost. Tokens
grow: one that was asked for after another was known is greater, and none has two owners. A
resource that checks tokens never takes a smaller one after a greater one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from penstock.broker.doors.desk import Desk
from penstock.broker.doors.lock_calls import LockInfo
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.locks import Locks
from penstock.model.errors import Reason, Refused
from tests.sim.machine.bugs import bugs_fail
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.run import HEALING_S_MAX, STUCK_S_MAX, WORK_S_MAX, Run
from tests.sim.replicas.history import require

NAMES = ("a", "b")
USERS = 5
LEASES_MS = (1_000, 1_500, 3_000)
# What a holder counts on, of a lease: the controller's clock may run faster than its own.
TRUST = 0.9
ANSWER_S_MAX = 4.0
RENEWAL_CHANCE = 0.6
RELEASE_CHANCE = 0.25
# A holder stands still for longer than its lease, and then goes on as if nothing had happened.
PAUSE_CHANCE = 0.1
# One that got no answer asks again as the same owner, or starts over as another one.
AGAIN_CHANCE = 0.8


@dataclass(slots=True, eq=False)
class Holding:
    """What one owner knows of the lock that it got."""

    name: str
    owner: str
    token: int
    lease_ms: int
    asked_at: float
    answered_at: float
    # Until then it counts itself as the holder; less after a release.
    until: float


@dataclass(slots=True)
class Book:
    """What all users together may see of the locks."""

    holdings: list[Holding] = field(default_factory=list)
    # The greatest token that each resource has seen.
    resources: dict[str, int] = field(default_factory=dict)
    grants: int = 0
    repeated: int = 0
    renewals: int = 0
    releases: int = 0
    lost: int = 0
    turned_away: int = 0
    fenced: int = 0

    def granted(self, new: Holding) -> None:
        for known in self.holdings:
            same = known.token == new.token
            require(
                not same or (known.owner, known.name) == (new.owner, new.name),
                f"token {new.token} belongs to {known} and {new}",
            )
            is_later = known.name == new.name and known.answered_at <= new.asked_at
            require(
                same or not is_later or new.token > known.token,
                f"{new} has not a greater token than {known}",
            )
        self.alone(new)
        self.holdings.append(new)
        self.grants += 1

    def alone(self, holder: Holding) -> None:
        if holder.until <= holder.answered_at:
            # The answer came so late that it counts for nothing.
            return
        for other in self.holdings:
            require(
                other.name != holder.name
                or other.token == holder.token
                or other.until <= holder.answered_at,
                f"{holder} and {other} hold the lock at a time",
            )

    def use(self, holding: Holding) -> None:
        """As a resource that looks at the token: it may come late, and is refused then."""
        seen = self.resources.get(holding.name, 0)
        self.fenced += holding.token < seen
        self.resources[holding.name] = max(seen, holding.token)


class _Channel:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def call(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        return await self._desk.serve(method, payload)


Asking = Callable[[Locks], Awaitable[LockInfo | None]]


class LockUser:
    """One question at a time, to any node."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], book: Book, number: int
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._book = book
        self._number = number
        self._owners = 0
        self._owner = ""
        # It has asked before, and got no answer.
        self._is_in_doubt = False
        self._name = ""
        self._lease_ms = 0
        self._questions = 0
        self.is_waiting = False
        self.is_stopping = False
        self._away_until = 0.0
        self.holding: Holding | None = None

    def act(self) -> None:
        nodes = [node for node in self._nodes if node.is_responsive]
        if self.is_waiting or not nodes or self._world.now < self._away_until:
            return
        node = self._world.random.choice(nodes)
        if self.holding is None:
            if not self.is_stopping:
                self._acquire(node)
        elif self._world.now < self.holding.until:
            self._hold(node, self.holding)
        else:
            self._wake_up(node, self.holding)

    def _acquire(self, node: SimulatedNode) -> None:
        random = self._world.random
        if not self._owner:
            self._owners += 1
            self._owner, self._is_in_doubt = f"user-{self._number}-{self._owners}", False
            self._name, self._lease_ms = random.choice(NAMES), random.choice(LEASES_MS)
        name, owner, lease_ms = self._name, self._owner, self._lease_ms
        wait_ms = random.choice((0, 500, 2_000))
        self._ask(node, lambda locks: locks.acquire(name, owner, lease_ms, wait_ms), self._acquired)

    def _acquired(self, asked_at: float, answer: LockInfo | Reason | None) -> None:
        if isinstance(answer, LockInfo):
            until = asked_at + TRUST * self._lease_ms / 1000
            holding = Holding(
                self._name,
                self._owner,
                answer.fencing_token,
                self._lease_ms,
                asked_at,
                self._world.now,
                until,
            )
            self._book.granted(holding)
            self._book.use(holding)
            self._book.repeated += self._is_in_doubt
            self.holding = holding
        elif answer is Reason.LOCK_HELD:
            self._book.turned_away += 1
            self._owner = ""
        else:
            self._is_in_doubt = True
            if self._world.random.random() > AGAIN_CHANCE:
                self._owner = ""

    def _hold(self, node: SimulatedNode, holding: Holding) -> None:
        chance = self._world.random.random()
        self._book.use(holding)
        if chance < PAUSE_CHANCE:
            self._away_until = holding.until + self._world.random.uniform(0.1, 3.0)
        elif self.is_stopping or chance < PAUSE_CHANCE + RELEASE_CHANCE:
            self._release(node, holding)
        elif chance < PAUSE_CHANCE + RELEASE_CHANCE + RENEWAL_CHANCE:
            self._renew(node, holding, asks_again=self._world.random.random() < 0.3)

    def _wake_up(self, node: SimulatedNode, holding: Holding) -> None:
        """It stood still, or nobody answered. What it does now is late, and must do no harm."""
        self._book.use(holding)
        chance = self._world.random.random()
        if chance < 0.3:
            self._renew(node, holding)
        elif chance < 0.6:
            self._release(node, holding)
        else:
            self._forget()

    def _renew(self, node: SimulatedNode, holding: Holding, *, asks_again: bool = False) -> None:
        """By its name, or by asking for the lock that it has."""

        def renewed(asked_at: float, answer: LockInfo | Reason | None) -> None:
            if isinstance(answer, LockInfo) and answer.fencing_token != holding.token:
                # The lease ended meanwhile, and the lock was free.
                self._lost(holding)
                self._acquired(asked_at, answer)
            elif isinstance(answer, LockInfo):
                holding.answered_at = self._world.now
                holding.until = max(holding.until, asked_at + TRUST * holding.lease_ms / 1000)
                self._book.alone(holding)
                self._book.renewals += 1
            elif answer in (Reason.LOCK_NOT_HELD, Reason.LOCK_HELD):
                self._lost(holding)
                self._forget()

        name, owner, token = holding.name, holding.owner, holding.token
        if asks_again:
            lease_ms = holding.lease_ms
            self._ask(node, lambda locks: locks.acquire(name, owner, lease_ms), renewed)
        else:
            self._ask(node, lambda locks: locks.renew(name, owner, token), renewed)

    def _lost(self, holding: Holding) -> None:
        is_over = self._world.now >= holding.until
        require(is_over, f"{holding} was lost at {self._world.now}")
        self._book.lost += 1

    def _release(self, node: SimulatedNode, holding: Holding) -> None:
        def released(_: float, answer: LockInfo | Reason | None) -> None:
            self._book.releases += answer is None
            self._book.lost += answer is Reason.LOCK_NOT_HELD
            self._forget()

        holding.until = min(holding.until, self._world.now)
        name, owner, token = holding.name, holding.owner, holding.token
        self._ask(node, lambda locks: _nothing(locks.release(name, owner, token)), released)

    def _forget(self) -> None:
        self.holding, self._owner = None, ""

    # Asking

    def _ask(
        self,
        node: SimulatedNode,
        asking: Asking,
        then: Callable[[float, LockInfo | Reason | None], None],
    ) -> None:
        self.is_waiting = True
        self._questions = number = self._questions + 1
        asked_at = self._world.now

        def answered(answer: LockInfo | Reason | None) -> None:
            if number == self._questions and self.is_waiting:
                self.is_waiting = False
                then(asked_at, answer)

        give_up = partial(answered, Reason.REQUEST_TIMED_OUT)
        node.ask(self._asked(node, asking, answered), give_up)
        self._world.after(ANSWER_S_MAX, give_up)

    async def _asked(
        self,
        node: SimulatedNode,
        asking: Asking,
        answered: Callable[[LockInfo | Reason | None], None],
    ) -> None:
        assert node.desk is not None
        process = node.machine.process
        assert process is not None
        answer: LockInfo | Reason | None
        try:
            answer = await asking(Locks(Broker(_Channel(node.desk)), process.loop.time))
        except Refused as refused:
            answer = refused.reason
        self._world.after(0.001, answered, answer)


async def _nothing(work: Awaitable[None]) -> None:
    await work


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReport:
    seed: int
    steps: int
    seconds: float
    grants: int
    # To owners that had asked before and got no answer.
    repeated: int
    renewals: int
    releases: int
    lost: int
    turned_away: int
    # That a resource refused, because a greater token came before.
    fenced: int
    stops: int


class LockRun(Run):
    """Faults as in every run of nodes; the work is that of the users of locks."""

    def __init__(self, seed: int, operations: int) -> None:
        super().__init__(seed, 0)
        self.book = Book()
        self.grants_wanted = operations
        self.users = [
            LockUser(self.world, self.nodes, self.book, number) for number in range(USERS)
        ]

    def run(self) -> LockReport:
        try:
            with bugs_fail(self.world):
                return self._run()
        finally:
            for node in self.nodes:
                node.crash(lost_power=False)

    def _run(self) -> LockReport:
        for node in self.nodes:
            node.start()
        ready = self.world.run_until(
            lambda: all(node.is_registered for node in self.nodes), HEALING_S_MAX
        )
        require(ready, "the cluster did not form")
        limit = self.world.now + WORK_S_MAX
        while self.world.now < limit and self.book.grants < self.grants_wanted:
            self.world.run_for(self.random.uniform(0.02, 0.3))
            for user in self.users:
                user.act()
            if self._idle_s() > STUCK_S_MAX:
                self._leave_in_peace()
            else:
                self._disturb_some(self.fault_chance)
        self._heal_locks()
        return LockReport(
            seed=self.seed,
            steps=self.world.steps,
            seconds=round(self.world.now, 3),
            grants=self.book.grants,
            repeated=self.book.repeated,
            renewals=self.book.renewals,
            releases=self.book.releases,
            lost=self.book.lost,
            turned_away=self.book.turned_away,
            fenced=self.book.fenced,
            stops=sum(node.stops for node in self.nodes),
        )

    def _disturb_some(self, fault_chance: float) -> None:
        if self.random.random() < fault_chance:
            self._disturb()

    def _acknowledged(self) -> int:
        return self.book.grants + self.book.renewals + self.book.turned_away

    def _is_work_done(self) -> bool:
        return False

    def _heal_locks(self) -> None:
        """Everybody gives up what it has, and then every lock can be had."""
        self.switch.become_reliable()
        for node in self.nodes:
            node.machine.drive.steps_left = None
            node.machine.drive.empty_out()
        for user in self.users:
            user.is_stopping = True
        limit = self.world.now + HEALING_S_MAX
        while not self._is_free():
            self._repair()
            self.world.run_for(0.2)
            for user in self.users:
                user.act()
            require(self.world.now < limit, f"locks stay held: {self._held()}")

    def _is_free(self) -> bool:
        idle = all(user.holding is None and not user.is_waiting for user in self.users)
        return idle and all(node.is_registered for node in self.nodes) and not any(self._held())

    def _held(self) -> list[object]:
        return [
            lock
            for node in self.nodes
            if node.server is not None
            for lock in node.server.cluster._feed.state.locks.values()
        ]


def run_locks(seed: int, operations: int = 60) -> LockReport:
    with own_garbage_only():
        return LockRun(seed, operations).run()
