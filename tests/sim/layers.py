"""The layers of simulation, from the fastest to the most complete."""

from collections.abc import Callable
from typing import Any

from tests.sim.core.run import run_seed as run_core
from tests.sim.nodes.locks import run_locks
from tests.sim.nodes.run import run_seed as run_nodes
from tests.sim.replicas.run import run_seed as run_replicas
from tests.sim.replicas.tails import run_one_flipped, run_power_cut, run_two_flipped

QUEUE_WORKERS = 3


def run_queues(seed: int, operations: int) -> Any:
    """Whole nodes, and the workers of a share group on them."""
    return run_nodes(seed, operations, queue_workers=QUEUE_WORKERS)


# Each takes a seed and how many operations clients shall do, and gives a report to be summed up.
LAYERS: dict[str, Callable[[int, int], Any]] = {
    "core": run_core,
    "replicas": run_replicas,
    "nodes": run_nodes,
    "queues": run_queues,
    "locks": run_locks,
}
# Directed runs of replicas, each at one kind of disaster.
DISASTERS: dict[str, Callable[[int, int], Any]] = {
    "power-cut": run_power_cut,
    "flipped-tail": run_one_flipped,
    "two-flipped-tails": run_two_flipped,
}
