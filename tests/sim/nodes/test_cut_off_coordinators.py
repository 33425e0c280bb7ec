"""A coordinator that was cut off must not say that something is deleted which it does not know."""

from collections.abc import Coroutine
from typing import Any

from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.cluster import DATA
from tests.sim.nodes.committer import GROUP, fetch_offsets
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.onlooker import leaders
from tests.sim.nodes.run import Run

SEEDS = range(1, 21)
ANSWER_S_MAX = 20.0
TWO_S_MAX = 3.0
CHANGE_S_MAX = 0.5


def _coordinators(run: Run) -> list[SimulatedNode]:
    return leaders(run.nodes, lambda node: node.group_log(GROUP))


def _answer(run: Run, node: SimulatedNode, request: Coroutine[Any, Any, Any], wait_s: float) -> Any:
    """None if there was no answer, or a refusal."""
    assert node.machine.process is not None
    task = node.machine.process.spawn(request)
    if not run.world.run_until(task.done, wait_s) or isinstance(task.exception(), Refused):
        return None
    return task.result()


def _commit(node: SimulatedNode, partition: int) -> Coroutine[Any, Any, list[Reason | None]]:
    assert node.server is not None
    offset = OffsetToCommit(TopicName(DATA), partition, 1)
    command = CommitOffsets(group_id=GROUP, offsets=(offset,))
    return node.server.services.groups.commit_offsets(command)


def _cut_off(run: Run) -> tuple[SimulatedNode, SimulatedNode] | None:
    """The coordinator, and the one in its place that alone knows of a second offset."""
    for node in run.nodes:
        node.start()
    run._make_data_topic()
    while not _coordinators(run):
        run.world.run_until(lambda: bool(_coordinators(run)), 1.0)
        _answer(run, run.nodes[0], _commit(run.nodes[0], 0), 1.0)
    (old,) = _coordinators(run)
    if _answer(run, old, _commit(old, 0), ANSWER_S_MAX) != [None]:
        return None
    run.switch.partition([node.node for node in run.nodes], {old.node}, one_way=False)
    if not run.world.run_until(lambda: len(_coordinators(run)) == 2, TWO_S_MAX):
        return None
    new = _coordinators(run)[1]
    is_done = _answer(run, new, _commit(new, 1), CHANGE_S_MAX) == [None]
    return (old, new) if is_done and _coordinators(run) == [old, new] else None


def _is_deleted_for_good(run: Run, old: SimulatedNode, new: SimulatedNode) -> bool:
    assert old.server is not None
    deleting = old.server.services.groups.delete_offsets(GROUP, [(TopicName(DATA), 1)])
    if _answer(run, old, deleting, ANSWER_S_MAX) != [None]:
        return True
    return 1 not in _answer(run, new, fetch_offsets(new, GROUP), ANSWER_S_MAX)


def test_a_coordinator_that_was_cut_off_deletes_nothing_that_it_does_not_know() -> None:
    found = 0
    for seed in SEEDS:
        run = Run(seed, 0)
        with own_garbage_only():
            try:
                coordinators = _cut_off(run)
                if coordinators is not None:
                    found += 1
                    assert _is_deleted_for_good(run, *coordinators)
            finally:
                for node in run.nodes:
                    node.crash(lost_power=False)
    assert found, "there were never two coordinators"
