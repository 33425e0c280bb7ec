"""Disks that can't take more for a while, that lie for a while, or that hang for a while."""

from typing import Protocol

from tests.sim.machine.process import Machine

# Shorter and longer than a node waits for its disk.
STALLS_S = (0.3, 2.5)
HANGS_S = (4.0, 12.0)


class Victim(Protocol):
    @property
    def machine(self) -> Machine: ...

    def crash(self, *, lost_power: bool) -> None: ...


def fill_disk(machine: Machine) -> None:
    """For a while there is no room; what was promised before stays."""
    world, drive = machine.world, machine.drive
    drive.bytes_max = drive.used() + world.random.randint(0, 300)
    world.after(world.random.uniform(0.2, 3.0), lambda: machine.drive.empty_out())


def hang_disk(machine: Machine) -> None:
    """For a while no call of a thread comes back. What was asked for is done at the end, or it was
    done at once and only the answer is late."""
    world = machine.world
    machine.disk_answers_late = world.random.random() < 0.5
    shortest, longest = world.random.choice((STALLS_S, HANGS_S))
    machine.disk_hangs_until = world.now + world.random.uniform(shortest, longest)


def fail_syncs(victim: Victim) -> None:
    """Nobody knows what is on disk then; the node is of no use until it starts again."""
    machine = victim.machine
    world, drive = machine.world, machine.drive
    drive.failing.add(world.random.choice(("sync", "sync directory")))

    def end() -> None:
        drive.failing.clear()
        if machine.drive is drive:
            victim.crash(lost_power=world.random.random() < 0.5)

    world.after(world.random.uniform(0.1, 2.0), end)


class Stopping(Victim, Protocol):
    @property
    def is_stopped(self) -> bool: ...


def fail_reads(victim: Stopping) -> None:
    """For a while nothing can be read; a process that ended because of it is started again."""
    machine = victim.machine
    world, drive = machine.world, machine.drive
    drive.failing.add("read")

    def end() -> None:
        drive.failing.discard("read")
        if machine.drive is drive and victim.is_stopped:
            victim.crash(lost_power=False)

    world.after(world.random.uniform(0.05, 1.0), end)
