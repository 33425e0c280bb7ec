"""How large the wheel is, and how long pip takes to install it with all that it needs."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode

ROOT = Path(__file__).resolve().parent.parent
MB = 1_000_000
INSTALL_TIMEOUT_S = 600.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    _call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    yield figure("size of the wheel", wheel.stat().st_size / MB, "MB", 3)
    # The first one fills pip's cache, which stands for an index nearby.
    _install(wheel, folder / "warm-up")
    seconds = [_install(wheel, folder / f"empty-{number}") for number in range(mode.rounds)]
    yield figure("pip install, warm cache, median", median(seconds), "s", 20)


def _install(wheel: Path, environment: Path) -> float:
    _call(sys.executable, "-m", "venv", environment)
    started = time.monotonic()
    _call(environment / "bin" / "pip", "install", "--quiet", wheel)
    return time.monotonic() - started


def _call(*words: str | Path) -> None:
    subprocess.run(
        [str(word) for word in words],
        check=True,
        timeout=INSTALL_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
    )


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="install", name=name, value=value, unit=unit, at_most=at_most)
