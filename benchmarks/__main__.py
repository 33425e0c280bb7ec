"""Runs the workloads one after the other, each on a fresh broker or cluster: `make bench`."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import (
    archive,
    cluster_partitions,
    doors,
    failover,
    fetch_many,
    first_write,
    groups,
    grpc_door,
    http_door,
    install,
    latency_over_partitions,
    many_partitions,
    metrics,
    pipeline_iot,
    queues,
    recovery,
    registry,
    replay,
    replication,
    small_requests,
    spark_memory,
    spark_read,
    spark_trigger,
    spark_write,
    start_up,
    steady_load,
    tables,
    thousands_of_partitions,
    throughput,
    tracing,
)
from benchmarks.figures import Figure, Note, Picture, table, write_report
from benchmarks.modes import MODES, Mode
from benchmarks.spark_rig import SparkRig

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

Found = Figure | Note | Picture
Workload = Callable[[Mode, Path], Iterable[Found]]
SparkWorkload = Callable[[Mode, Path, SparkRig], Iterator[Figure | Note]]

WORKLOADS: dict[str, Workload] = {
    "install": install.run,
    "start": start_up.run,
    "partitions": many_partitions.run,
    "requests": small_requests.run,
    "throughput": throughput.run,
    "recovery": recovery.run,
    "failover": failover.run,
    "replication": replication.run,
    "cluster-partitions": cluster_partitions.run,
    "many-partitions": latency_over_partitions.run,
    "many-partitions-fetch": fetch_many.run,
    "many-partitions-first-write": first_write.run,
    "many-partitions-idle": thousands_of_partitions.run,
    "steady-load": steady_load.run,
    "groups": groups.run,
    "queues": queues.run,
    "http": http_door.run,
    "registry": registry.run,
    "grpc": grpc_door.run,
    "metrics": metrics.run,
    "doors": doors.run,
    "tables": tables.run,
    "tracing": tracing.run,
}

SPARK_WORKLOADS: dict[str, SparkWorkload] = {
    "spark-read": spark_read.run,
    "spark-write": spark_write.run,
    "spark-trigger": spark_trigger.run,
    "spark-memory": spark_memory.run,
    "archive": archive.run,
    "replay": replay.run,
    "pipeline-iot": pipeline_iot.run,
}

ALL_WORKLOADS = (*WORKLOADS, *SPARK_WORKLOADS)


def run_all(names: Sequence[str], mode: Mode) -> Iterator[Found]:
    """Those of Spark come last and share its processes, which take long to start."""
    for name in names:
        if name in WORKLOADS:
            with fresh_folder() as folder:
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                yield from WORKLOADS[name](mode, folder)
    spark_names = [name for name in names if name in SPARK_WORKLOADS]
    if not spark_names:
        return
    with fresh_folder() as logs, SparkRig(logs, shared=mode.spark_processes_shared) as rig:
        for name in spark_names:
            with fresh_folder() as folder:
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                yield from SPARK_WORKLOADS[name](mode, folder, rig)


def announced(found: Iterable[Found]) -> Iterator[Found]:
    """Tell each figure as it comes: all of them take an hour, and may be cut short."""
    for one in found:
        if isinstance(one, Figure):
            print(f"  {one.line}", file=sys.stderr, flush=True)
        yield one


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """On the project's own disk: a temporary directory may lie in memory, where fsync is free."""
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="full")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON report")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(ALL_WORKLOADS))
    options = parser.parse_args(arguments)
    unknown = set(options.workloads) - set(ALL_WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")

    found = list(announced(run_all(options.workloads or ALL_WORKLOADS, MODES[options.mode])))
    figures = [one for one in found if isinstance(one, Figure)]
    notes = list(dict.fromkeys(one for one in found if isinstance(one, Note)))
    pictures = [one for one in found if isinstance(one, Picture)]
    print(table(figures))
    for note in notes:
        print(f"\n{note.topic}: {note.text}")
    report = write_report(figures, notes, pictures, options.mode, options.results)
    print(f"\nwritten to {report}")
    missed = [figure for figure in figures if figure.verdict == "FAIL"]
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
