"""The layers of simulation, from the fastest to the most complete."""

from collections.abc import Callable
from typing import Any

from tests.sim.core.run import run_seed as run_core
from tests.sim.nodes.run import run_seed as run_nodes
from tests.sim.replicas.run import run_seed as run_replicas

# Each takes a seed and how many operations clients shall do, and gives a report to be summed up.
LAYERS: dict[str, Callable[[int, int], Any]] = {
    "core": run_core,
    "replicas": run_replicas,
    "nodes": run_nodes,
}
