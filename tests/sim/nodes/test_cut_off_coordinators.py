"""A coordinator that was cut off promises nothing: neither that something is deleted which it does
not know, nor a place in the group."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.groups.commands import (
    CommitOffsets,
    ConsumerAnswer,
    ConsumerHeartbeat,
    OffsetToCommit,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId, TopicName
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


async def _join(node: SimulatedNode) -> ConsumerAnswer:
    assert node.server is not None
    beat = ConsumerHeartbeat(
        group_id=GROUP,
        member_id=MemberId("latecomer"),
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        topics=frozenset({DATA}),
        owned={},
    )
    return await node.server.services.groups.consumer_heartbeat(beat)


def _cut_off_alone(run: Run) -> SimulatedNode | None:
    """The coordinator, which has committed an offset and reaches nobody since."""
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
    return old


def _cut_off(run: Run) -> tuple[SimulatedNode, SimulatedNode] | None:
    """The coordinator, and the one in its place that alone knows of a second offset."""
    old = _cut_off_alone(run)
    if old is None:
        return None
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


@contextmanager
def _nodes(seed: int) -> Iterator[Run]:
    run = Run(seed, 0)
    with own_garbage_only():
        try:
            yield run
        finally:
            for node in run.nodes:
                node.crash(lost_power=False)


def test_a_coordinator_that_was_cut_off_deletes_nothing_that_it_does_not_know() -> None:
    found = 0
    for seed in SEEDS:
        with _nodes(seed) as run:
            coordinators = _cut_off(run)
            if coordinators is not None:
                found += 1
                assert _is_deleted_for_good(run, *coordinators)
    assert found, "there were never two coordinators"


def test_a_coordinator_that_was_cut_off_takes_no_member() -> None:
    """A member that hears of its epoch is in a group that outlives the coordinator."""
    with _nodes(1) as run:
        coordinator = _cut_off_alone(run)
        assert coordinator is not None
        assert _answer(run, coordinator, _join(coordinator), ANSWER_S_MAX) is None
        run.switch.heal()
        run.world.run_until(lambda: len(_coordinators(run)) == 1, ANSWER_S_MAX)
        (coordinator,) = _coordinators(run)
        assert _answer(run, coordinator, _join(coordinator), ANSWER_S_MAX).assignment
