"""Runs the workloads one after the other, each on a fresh broker or cluster: `make bench`."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    cluster_partitions,
    failover,
    many_partitions,
    recovery,
    replication,
    small_requests,
    start_up,
    throughput,
)
from benchmarks.figures import Figure, table, write_json
from benchmarks.modes import MODES, Mode

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

Workload = Callable[[Mode, Path], Iterator[Figure]]

WORKLOADS: dict[str, Workload] = {
    "start": start_up.run,
    "partitions": many_partitions.run,
    "requests": small_requests.run,
    "throughput": throughput.run,
    "recovery": recovery.run,
    "failover": failover.run,
    "replication": replication.run,
    "cluster-partitions": cluster_partitions.run,
}


def run_one(workload: Workload, mode: Mode) -> Iterator[Figure]:
    """On the project's own disk: a temporary directory may lie in memory, where fsync is free."""
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        yield from workload(mode, folder)
    finally:
        shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="full")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON report")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    options = parser.parse_args(arguments)
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")

    figures: list[Figure] = []
    for name in options.workloads or WORKLOADS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures += run_one(WORKLOADS[name], MODES[options.mode])
    print(table(figures))
    print(f"\nwritten to {write_json(figures, options.mode, options.results)}")
    missed = [figure for figure in figures if figure.verdict == "FAIL"]
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
