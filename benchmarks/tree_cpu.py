"""What the processes under this one cost: Spark's JVM, and all Python processes under that."""

import contextlib

import psutil

from benchmarks.probe import cpu_seconds

# CPU seconds by process id and birth: an id may be given to another process.
TreeCpu = dict[tuple[int, float], float]


def tree_cpu() -> TreeCpu:
    found: TreeCpu = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            found[process.pid, process.create_time()] = cpu_seconds(process.pid)
    return found


def cpu_seconds_between(before: TreeCpu, after: TreeCpu) -> float:
    """Of the processes that are there at the end; workers are reused, so that little is lost.

    One that ended takes its share with it, and what it had used before must not be taken off.
    """
    return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())
