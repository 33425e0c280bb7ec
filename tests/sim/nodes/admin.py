"""A simulated administrator: makes, grows and deletes topics anywhere, and notes what it heard."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial

from penstock.broker.services import Services
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Growth, NewTopic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from tests.sim.linearizability import NEVER, UNKNOWN, Operation
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode

ANSWER_S_MAX = 5.0
OK = "ok"
# Answers that say what the metadata was like; all others say nothing about it.
_TELLING = frozenset(
    {
        Reason.TOPIC_ALREADY_EXISTS,
        Reason.UNKNOWN_TOPIC_OR_PARTITION,
        Reason.INVALID_PARTITIONS,
    }
)

Call = tuple[str, str, int]


def topics(state: Hashable, call: Hashable) -> tuple[Hashable, Hashable]:
    """What a single copy of the metadata would do: the state is how many partitions there are."""
    assert isinstance(call, tuple)
    assert isinstance(state, int)
    kind, _, partitions = call
    match kind:
        case "create":
            return (OK, partitions) if state == 0 else (Reason.TOPIC_ALREADY_EXISTS, state)
        case "delete":
            return (OK, 0) if state else (Reason.UNKNOWN_TOPIC_OR_PARTITION, 0)
        case "grow" if state == 0:
            return Reason.UNKNOWN_TOPIC_OR_PARTITION, 0
        case "grow":
            return (OK, partitions) if partitions > state else (Reason.INVALID_PARTITIONS, state)
        case _:
            return state, state


def only_looks(_: Hashable, result: Hashable) -> bool:
    """A read, and a change that was refused for what it found."""
    return result not in (OK, UNKNOWN)


class Administrator:
    """Asks one thing at a time."""

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], names: Sequence[str]) -> None:
        self._world = world
        self._nodes = nodes
        self._names = names
        self._pending: tuple[int, float, Call] | None = None
        self._number = 0
        self.history: list[Operation] = []
        self.refusals: dict[Reason, int] = {}

    @property
    def is_waiting(self) -> bool:
        return self._pending is not None

    def act(self) -> None:
        random = self._world.random
        nodes = [node for node in self._nodes if node.is_responsive]
        if self.is_waiting or not nodes:
            return
        node = random.choice(nodes)
        kind = random.choice(("create", "create", "delete", "grow"))
        call = (kind, random.choice(self._names), random.randint(1, 3))
        self._number += 1
        number = self._number
        self._pending = (number, self._world.now, call)
        assert node.server is not None
        give_up = partial(self._answered, number, UNKNOWN)
        node.ask(self._ask(number, node.server.services, call), give_up)
        self._world.after(ANSWER_S_MAX, give_up)

    async def _ask(self, number: int, services: Services, call: Call) -> None:
        try:
            outcome = await _CALLS[call[0]](services, *call[1:])
        except Refused as refused:
            outcome = refused
        result: Hashable = OK
        if isinstance(outcome, Refused):
            self.refusals[outcome.reason] = self.refusals.get(outcome.reason, 0) + 1
            result = outcome.reason if outcome.reason in _TELLING else UNKNOWN
        self._world.after(0.001, lambda: self._answered(number, result))

    def _answered(self, number: int, result: Hashable) -> None:
        if self._pending is None or self._pending[0] != number:
            return
        _, called, call = self._pending
        self._pending = None
        returned = NEVER if result == UNKNOWN else self._world.now
        self.history.append(Operation(called, returned, call, result))


async def _create(services: Services, name: str, partitions: int) -> Topic | Refused:
    new = NewTopic(name=name, configs={}, partitions=partitions)
    return (await services.topics.create([new]))[name]


async def _delete(services: Services, name: str, _: int) -> Topic | Refused:
    return (await services.topics.delete([TopicName(name)]))[0]


async def _grow(services: Services, name: str, partitions: int) -> Topic | Refused:
    return (await services.topics.grow([Growth(name=name, partitions=partitions)]))[name]


_CALLS: dict[str, Callable[[Services, str, int], Awaitable[Topic | Refused]]] = {
    "create": _create,
    "delete": _delete,
    "grow": _grow,
}
