"""What the simulated group takes for a lost commit or a vain deletion, and what not."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from penstock.groups.commands import CommitOffsets
from penstock.model.errors import Reason
from tests.sim.machine.loop import SimulatedLoop
from tests.sim.machine.world import World
from tests.sim.nodes.committer import ANSWER_S_MAX, Committer

DONE: list[Reason | None] = [None]
REFUSED: list[Reason | None] = [Reason.NOT_COORDINATOR]


class Broker:
    """Leaves the answers to the test."""

    def __init__(self, *, deletion_chance: float = 0.0) -> None:
        self.world = World(Random(1))
        self.loop = SimulatedLoop(self.world, rate=1.0)
        self.answers: list[asyncio.Future[list[Reason | None]]] = []
        process = SimpleNamespace(spawn=self.loop.create_task)
        node: Any = SimpleNamespace(
            is_responsive=True,
            machine=SimpleNamespace(process=process),
            server=SimpleNamespace(services=SimpleNamespace(groups=self)),
            ask=lambda request, _lost=None: self.loop.create_task(request),
            group_log=lambda _: None,
        )
        self.committer = Committer(self.world, [node], "data", 1, deletion_chance)

    async def commit_offsets(self, command: CommitOffsets) -> list[Reason | None]:
        return await self._answer()

    async def delete_offsets(self, *_: object) -> list[Reason | None]:
        return await self._answer()

    async def delete(self, _: object) -> list[Reason | None]:
        return await self._answer()

    async def _answer(self) -> list[Reason | None]:
        answer = self.loop.create_future()
        self.answers.append(answer)
        return await answer

    def ask(self) -> None:
        self.committer.act()
        self.world.run_for(0.1)

    def answer(self, number: int, outcome: list[Reason | None]) -> None:
        self.answers[number - 1].set_result(outcome)
        self.world.run_for(0.1)

    def explains(self, found: int | None) -> bool:
        self.committer.found = None if found is None else {0: found}
        return self.committer.is_explained


def test_an_older_commit_is_a_loss_once_it_was_over() -> None:
    broker = Broker()
    for number, outcome in enumerate((DONE, REFUSED, DONE), 1):
        broker.ask()
        broker.answer(number, outcome)
    assert broker.committer.acknowledged == 3
    assert [broker.explains(found) for found in (None, 0, 1, 2, 3)] == [False] * 4 + [True]


def test_a_refused_commit_may_be_found_if_none_came_later() -> None:
    broker = Broker()
    for number, outcome in enumerate((DONE, REFUSED), 1):
        broker.ask()
        broker.answer(number, outcome)
    assert [broker.explains(found) for found in (0, 1, 2)] == [False, True, True]


def test_a_commit_that_was_given_up_may_come_after_later_ones() -> None:
    broker = Broker()
    broker.ask()
    broker.world.run_for(ANSWER_S_MAX)
    broker.ask()
    broker.answer(2, DONE)
    assert broker.committer.acknowledged == 2
    assert [broker.explains(found) for found in (0, 1, 2)] == [False, True, True]
    broker.answer(1, DONE)
    assert broker.committer.acknowledged == 2
    assert broker.explains(1)
    broker.ask()
    broker.answer(3, DONE)
    assert [broker.explains(found) for found in (1, 2, 3)] == [False, False, True]


def test_with_the_end_of_its_process_a_commit_is_over() -> None:
    broker = Broker()
    broker.ask()
    broker.loop.die()
    broker.loop.bury()
    broker.loop.is_dead = False
    broker.world.run_for(ANSWER_S_MAX)
    broker.ask()
    broker.answer(2, DONE)
    assert not broker.explains(1)


def test_after_a_deletion_nothing_older_is_found() -> None:
    broker = Broker()
    broker.ask()
    broker.answer(1, DONE)
    broker.committer._deletion_chance = 1.0
    broker.ask()
    assert [broker.explains(found) for found in (0, 1)] == [True, True]
    broker.answer(2, DONE)
    assert broker.committer.deletions == 1
    assert [broker.explains(found) for found in (0, 1)] == [True, False]
    broker.committer._deletion_chance = 0.0
    broker.ask()
    broker.answer(3, DONE)
    assert [broker.explains(found) for found in (0, 1, 3)] == [False, False, True]
