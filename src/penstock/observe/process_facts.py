"""What the machine says of this process, by the names that Prometheus's own clients use."""

import gc
import os
import resource
import sys
import time
from typing import Final

from penstock.observe.families import Sample

_PROCESS: Final = "/proc/self"
_PAGE_BYTES: Final = resource.getpagesize()
# Fields of /proc/self/stat behind the name of the program.
_START_TICKS: Final = 19


def process_samples() -> dict[str, list[Sample]]:
    """Blocks for a moment, so for worker threads; leaves out what this system does not tell."""
    cpu = time.process_time()
    found: dict[str, float] = {
        "process_cpu_seconds_total": cpu,
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    if sys.platform == "linux":
        found |= _linux_facts()
    else:
        # In bytes there, and the most that it ever was.
        found["process_resident_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    samples: dict[str, list[Sample]] = {name: [((), value)] for name, value in found.items()}
    samples["python_gc_collections_total"] = [
        ((str(generation),), stats["collections"])
        for generation, stats in enumerate(gc.get_stats())
    ]
    return samples


def _linux_facts() -> dict[str, float]:
    with open(f"{_PROCESS}/statm") as file:
        resident_pages = int(file.read().split()[1])
    with open(f"{_PROCESS}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    with open("/proc/stat") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    started = int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    return {
        "process_resident_memory_bytes": resident_pages * _PAGE_BYTES,
        "process_open_fds": len(os.listdir(f"{_PROCESS}/fd")),
        "process_start_time_seconds": booted + started,
    }
