"""From the birth of the process to the first answer, and what an idle broker holds in memory."""

import compileall
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode
from benchmarks.probe import TimedStart, cpu_seconds, rss_megabytes
from penstock import server

SETTLE_S = 1.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    # As pip does when it installs a package; a checkout is compiled when it is first imported,
    # unless the environment forbids it.
    compileall.compile_dir(Path(server.__file__).parent, quiet=2)
    ready_ms: list[float] = []
    cpu_ms: list[float] = []
    resident: list[float] = []
    for number in range(mode.starts):
        broker = TimedStart(folder / f"data-{number}")
        try:
            ready_ms.append(broker.ready_ms)
            cpu_ms.append(1000 * cpu_seconds(broker.pid))
            mode.settle(SETTLE_S)
            resident.append(rss_megabytes(broker.pid))
        finally:
            broker.kill()
    yield figure("first Metadata answered, median", median(ready_ms), "ms", 300)
    yield figure("first Metadata answered, worst", max(ready_ms), "ms")
    # On a busy machine the wall clock says more about its neighbours than about the broker.
    yield figure("CPU until then, median", median(cpu_ms), "ms")
    yield figure("idle resident memory", max(resident), "MB", 80)


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="start", name=name, value=value, unit=unit, at_most=at_most)
