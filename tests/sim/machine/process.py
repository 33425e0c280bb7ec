"""A simulated process: its loop, clock, threads, disk and place in the network, and its end."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from penstock.model.ids import BrokerId
from tests.sim.machine.clock import SimulatedClock
from tests.sim.machine.drive import Drive
from tests.sim.machine.executor import SimulatedExecutor
from tests.sim.machine.loop import SimulatedLoop
from tests.sim.machine.wire import SimulatedPeerNetwork, Switch
from tests.sim.machine.world import World


def _nobody() -> None:
    """Nobody looks."""


class Machine:
    """What outlives a process: the disk, and the speed of everything."""

    def __init__(self, world: World, switch: Switch, node: BrokerId) -> None:
        self.world = world
        self.switch = switch
        self.node = node
        self.drive = Drive()
        self.rate = world.random.choice((0.95, 1.0, 1.0, 1.05))
        self.slow_disk_chance = world.random.choice((0.0, 0.02, 0.2))
        # Until then its disk takes calls and answers none.
        self.disk_hangs_until = 0.0
        # Whether it does what it is asked for meanwhile.
        self.disk_answers_late = False
        self.process: Process | None = None
        # Called while all that a process did can still be seen.
        self.after_death: Callable[[], None] = _nobody

    def start(self) -> "Process":
        assert self.process is None
        self.process = Process(self)
        return self.process

    def job_duration(self) -> float:
        draw = self.world.random.random
        if draw() < self.slow_disk_chance:
            return 0.005 + 0.095 * draw()
        return 0.0001 + 0.0019 * draw()

    def crash(self, *, lost_power: bool) -> None:
        """The process ends where it is; the disk keeps what such an end leaves."""
        process = self.process
        if process is not None:
            process.die(silently=lost_power)
            self._clear_away(lost_power)

    def crash_in_a_write(self, steps: int, *, lost_power: bool) -> None:
        """As `crash`, at the disk change that comes after `steps` more of them."""
        self.drive.steps_left = steps
        self.drive.on_death = lambda: self._died(lost_power)

    def _died(self, lost_power: bool) -> None:
        assert self.process is not None
        self.process.die(silently=lost_power)
        # Not from inside of the process, which is still on the stack.
        self.world.after(0.0, lambda: self._clear_away(lost_power))

    def _clear_away(self, lost_power: bool) -> None:
        process = self.process
        if process is not None and process.loop.is_dead:
            # Not before now: the process may have died with a lock in its hands.
            self.drive.show(self.after_death)
            self.process = None
            self.drive.stop()
            process.loop.bury()
            self.drive = self.drive.reborn(self.world.random, lost_power=lost_power)

    def replace_drive(self) -> None:
        """The disk is gone, and an empty one is in its place."""
        assert self.process is None
        self.drive = Drive()


class Process:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        world = machine.world
        self.loop = SimulatedLoop(world, rate=machine.rate)
        self.clock = SimulatedClock(self.loop)
        self.network = SimulatedPeerNetwork(machine.switch, self.loop, machine.node)
        self.drive = machine.drive
        self.random = Random(world.random.getrandbits(64))
        self.loop.default_executor = self.executor(4)

    def executor(self, threads: int) -> SimulatedExecutor:
        machine = self._machine
        return SimulatedExecutor(
            machine.world,
            self.loop,
            threads,
            machine.job_duration,
            lambda: machine.disk_hangs_until,
            lambda: machine.disk_answers_late,
        )

    def random_below(self, bound: int) -> int:
        return self.random.randrange(bound)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "Any":
        return self.loop.create_task(coroutine)

    def die(self, *, silently: bool) -> None:
        self.loop.die()
        self.network.listener = None
        self._machine.switch.died(self.network, silently=silently)
