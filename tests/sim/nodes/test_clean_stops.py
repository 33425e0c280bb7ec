"""A leader that is stopped cleanly answers what it has accepted: acknowledgements that it took
count, and polls that wait hear that there is nothing, before another node leads or the door gives
up."""

from asyncio import Task
from typing import Any

import pytest

from penstock.broker.queues import AckType, Queues
from penstock.model.ids import MemberId
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.poisoned import POISON, PoisonedLife

# Far longer than a door waits for calls that it has accepted.
WAIT_MS = 20_000
# How long a door is patient.
ANSWER_S_MAX = 2.0
MEMBER = MemberId("member")


class CleanStop(PoisonedLife):
    """The leader stops right after it has taken an acknowledgement, and while somebody polls."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.acked: Any = None
        self.polled: Any = None

    def _live(self) -> None:
        node = self._some_node()
        assert node is not None
        task = self._spawn(node, self._poll(node, MEMBER))
        assert self._world.run_until(task.done, ANSWER_S_MAX)
        assert {record.offset for record, _ in task.result()} == {0, POISON, 2}
        polling = self._spawn(node, self._poll(node, MemberId("other"), wait_ms=WAIT_MS))
        self._world.run_for(0.1)
        said = dict.fromkeys((0, POISON, 2), AckType.ACCEPT)
        saying = self._spawn(node, self._say(node, MEMBER, said))
        queues = _queues(node)
        is_taken = self._world.run_until(
            lambda: any(not queue.stored().is_settled for queue in queues._led.values()), 1.0
        )
        assert is_taken
        assert not saying.done()
        node.stop(lost_power=False)
        self._world.run_until(lambda: bool(saying.done() and polling.done()), ANSWER_S_MAX)
        self.acked = saying.done() and saying.result()
        self.polled = polling.done() and polling.result()

    def _spawn(self, node: SimulatedNode, work: Any) -> Task[Any]:
        assert node.machine.process is not None
        task: Task[Any] = node.machine.process.spawn(work)
        return task

    def _check_end(self) -> None:
        """Of a life that was not lived to its end."""


def _queues(node: SimulatedNode) -> Queues:
    assert node.server is not None
    return node.server.services.queues


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_a_leader_has_accepted_is_answered_before_it_stops(nodes: int) -> None:
    stop = CleanStop(nodes)
    with own_garbage_only():
        stop.execute()
    assert stop.acked is True
    assert stop.polled == []


@pytest.mark.parametrize("nodes", [1, 3])
def test_without_that_the_answers_would_be_lost(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: Queues) -> None:
        """Goes without a word."""

    monkeypatch.setattr(Queues, "leave", at_once)
    stop = CleanStop(nodes)
    with own_garbage_only():
        stop.execute()
    assert stop.acked is not True or stop.polled != []
