"""A node that hears no answer to its change of the metadata finds out, and makes it only once."""

from collections.abc import Awaitable, Callable

from penstock.broker.services import Services
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Growth, NewTopic
from penstock.model.ids import Offset, TopicName
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.onlooker import leaders
from tests.sim.nodes.run import Run

SEEDS = range(1, 6)
NAME = "grown"
CHANGE_S_MAX = 5.0
ANSWER_S_MAX = 30.0


def _partitions(node: SimulatedNode) -> int:
    assert node.server is not None
    topic = node.server.cluster.topic(NAME)
    return 0 if topic is None else topic.partitions


def _is_appended(controller: SimulatedNode) -> bool:
    """The growth, though it may not be committed."""
    assert controller.server is not None
    topic = controller.server.cluster._host.state.topic(NAME)
    return topic is not None and topic.partitions == 3


def _log_end(node: SimulatedNode) -> Offset:
    replica = node.metadata()
    assert replica is not None
    return replica.log_end_offset


def _controller(run: Run, nodes: list[SimulatedNode]) -> SimulatedNode:
    def others() -> list[SimulatedNode]:
        return leaders(nodes, SimulatedNode.metadata)

    assert run.world.run_until(lambda: len(others()) == 1, CHANGE_S_MAX), "nobody was elected"
    return others()[0]


def _change(
    run: Run, node: SimulatedNode, change: Callable[[Services], Awaitable[object]], partitions: int
) -> None:
    """Until the topic has that many partitions; others need not know it yet."""
    assert node.server is not None
    services = node.server.services

    async def ask() -> None:
        await change(services)

    node.ask(ask())
    assert run.world.run_until(lambda: _partitions(node) == partitions, CHANGE_S_MAX)


def _cut_off(run: Run, node: SimulatedNode) -> None:
    """What is under way does not arrive."""
    run.switch.partition([each.node for each in run.nodes], {node.node}, one_way=False)
    for link in list(run.switch.links):
        if node.node in link.nodes():
            link.close()


def _create(services: Services) -> Awaitable[object]:
    return services.topics.create([NewTopic(name=NAME, partitions=1, configs={})])


def _delete(services: Services) -> Awaitable[object]:
    return services.topics.delete([TopicName(NAME)])


def _partitions_after_growth(run: Run, *, asks_controller: bool) -> int:
    """A topic grows, and is deleted and made again before the node that was asked for the growth
    hears of it. How many partitions it has then."""
    for node in run.nodes:
        node.start()
    run._make_data_topic()
    controller = _controller(run, run.nodes)
    _change(run, controller, _create, 1)
    asked = controller if asks_controller else next(n for n in run.nodes if n is not controller)
    others = [node for node in run.nodes if node is not asked]
    assert run.world.run_until(lambda: _partitions(asked) == 1, CHANGE_S_MAX)
    assert asked.server is not None
    assert asked.machine.process is not None
    growth = asked.server.services.topics.grow([Growth(name=NAME, partitions=3)])
    growing = asked.machine.process.spawn(growth)
    assert run.world.run_until(lambda: _is_appended(controller), CHANGE_S_MAX)
    end = _log_end(controller)
    # From then on it will be committed: whoever leads next has it.
    assert run.world.run_until(lambda: min(map(_log_end, others)) >= end, CHANGE_S_MAX)
    _cut_off(run, asked)
    successor = _controller(run, others)
    assert run.world.run_until(lambda: _partitions(successor) == 3, CHANGE_S_MAX)
    _change(run, successor, _delete, 0)
    _change(run, successor, _create, 1)
    run.switch.heal()
    assert run.world.run_until(growing.done, ANSWER_S_MAX)
    outcome = growing.result()[NAME]
    assert isinstance(outcome, Topic)
    assert outcome.partitions == 3
    return _partitions(successor)


def _check_seeds(*, asks_controller: bool) -> None:
    for seed in SEEDS:
        run = Run(seed, 0)
        with own_garbage_only():
            try:
                assert _partitions_after_growth(run, asks_controller=asks_controller) == 1
            finally:
                for node in run.nodes:
                    node.crash(lost_power=False)


def test_a_growth_whose_answer_is_lost_happens_once() -> None:
    _check_seeds(asks_controller=False)


def test_a_growth_by_a_controller_that_is_cut_off_happens_once() -> None:
    _check_seeds(asks_controller=True)
