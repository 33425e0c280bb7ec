"""Which core the broker runs on and which one Spark: neither may take the other's time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A core each; None where processes can't be bound to cores, or where there is only one."""

    broker_core: int | None
    spark_core: int | None

    @property
    def description(self) -> str:
        if self.broker_core is None:
            return "broker and Spark share all cores"
        return f"broker on core {self.broker_core}, Spark on core {self.spark_core}"


ANYWHERE = Placement(broker_core=None, spark_core=None)


def choose_placement() -> Placement:
    if not hasattr(os, "sched_getaffinity"):
        return ANYWHERE
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return ANYWHERE
    return Placement(broker_core=cores[0], spark_core=cores[1])


@contextmanager
def children_on(core: int | None) -> Iterator[None]:
    """Processes started inside stay on that core, and all that they start."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
