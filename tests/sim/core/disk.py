"""A simulated disk of one replica: writes become durable later, and a crash loses the rest."""

from collections import deque
from random import Random

from penstock.raft.ready import Write
from tests.unit.raft.memory_log import MemoryLog


class SimulatedDisk:
    def __init__(self, log: MemoryLog) -> None:
        self.durable = log
        self.under_way: deque[Write] = deque()

    def start(self, write: Write) -> None:
        self.under_way.append(write)

    def finish(self, number: int) -> None:
        """Every write up to `number` is synced; hosts sync several in one go."""
        while self.under_way and self.under_way[0].number <= number:
            self.durable.carry_out(self.under_way.popleft())

    def crash(self, random: Random) -> None:
        """Of what was not synced, an arbitrary beginning survives; term and vote lie in another
        file than the entries, so either can survive without the other."""
        for write in self.under_way:
            if not self._survives_whole(write, random):
                break
        self.under_way.clear()

    def _survives_whole(self, write: Write, random: Random) -> bool:
        whole = True
        if write.hard_state is not None:
            whole = random.random() < 0.5
            if whole:
                self.durable.hard_state = write.hard_state
        if write.snapshot is not None:
            if random.random() < 0.5:
                return False
            self.durable.install(write.snapshot)
        kept = random.randint(0, len(write.entries))
        self.durable.store(write.entries[:kept])
        return whole and kept == len(write.entries)
