"""Notices what a process only logs: an error of ours that was caught and must not go unseen."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from penstock.model.errors import Refused, StorageDamaged
from tests.sim.machine.world import World

# What faults of disks and peers lead to.
EXPECTED = (OSError, Refused, StorageDamaged)


class _Catcher(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        # All simulated processes share it; what other threads log is not of this run.
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, EXPECTED):
            self._world.failures.append(f"logged: {self.format(record)}")


@contextmanager
def bugs_fail(world: World) -> Iterator[None]:
    """Lets the run fail when one of its processes logs a bug; other lines go nowhere."""
    logger = logging.getLogger("penstock")
    handler, propagates = _Catcher(world), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
        # A task or a future that failed, and that nobody waits for, tells its loop of it now.
        gc.collect()
        world.check()
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
