"""A leader that was cut off takes itself for the leader for a while, and tells nothing old."""

from penstock.cluster.topic_decisions import NewTopic
from penstock.model.errors import Refused
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.onlooker import leaders
from tests.sim.nodes.run import Run

# Some of them have a moment with two controllers, long enough for a change; in few of these the old
# one has nothing under way that would keep it from answering.
SEEDS = range(1, 41)
TWO_S_MAX = 3.0
CHANGE_S_MAX = 0.5
ANSWER_S_MAX = 20.0
LATE = "late"


def _controllers(run: Run) -> list[SimulatedNode]:
    return leaders(run.nodes, SimulatedNode.metadata)


def _cut_off(run: Run) -> tuple[SimulatedNode, SimulatedNode] | None:
    """The controller, and the one that was elected in its place and has changed something, while
    the first does not know of the second; None if it noticed too early."""
    for node in run.nodes:
        node.start()
    run._make_data_topic()
    (controller,) = _controllers(run)
    numbers = [node.node for node in run.nodes]
    run.switch.partition(numbers, {controller.node}, one_way=False)
    if not run.world.run_until(lambda: len(_controllers(run)) == 2, TWO_S_MAX):
        return None
    old, new = _controllers(run)
    assert new.server is not None
    cluster = new.server.cluster
    new.ask(_create(new))
    is_done = run.world.run_until(lambda: cluster.topic(LATE) is not None, CHANGE_S_MAX)
    return (old, new) if is_done and _controllers(run) == [old, new] else None


async def _create(node: SimulatedNode) -> None:
    assert node.server is not None
    await node.server.services.topics.create([NewTopic(name=LATE, partitions=1, configs={})])


def _tells_the_truth(run: Run, node: SimulatedNode) -> bool:
    assert node.server is not None
    assert node.machine.process is not None
    reading = node.machine.process.spawn(node.server.cluster.catch_up())
    assert run.world.run_until(reading.done, ANSWER_S_MAX)
    if isinstance(reading.exception(), Refused):
        return True
    return node.server.cluster.topic(LATE) is not None


def test_a_controller_that_was_cut_off_does_not_tell_what_was_true_before() -> None:
    found = 0
    for seed in SEEDS:
        run = Run(seed, 0)
        with own_garbage_only():
            try:
                controllers = _cut_off(run)
                if controllers is not None:
                    found += 1
                    assert _tells_the_truth(run, controllers[0])
            finally:
                for node in run.nodes:
                    node.crash(lost_power=False)
    assert found, "there were never two controllers"
