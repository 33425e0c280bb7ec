"""`python -m tests.sim --seeds N --seed K`: runs seeds K to K+N-1 and says how many failed."""

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from tests.sim.layers import DISASTERS, LAYERS

SEEDS_PER_JOB = 10


class Outcome(NamedTuple):
    seed: int
    # What the run counted, or why it failed.
    counts: dict[str, float]
    failure: str
    seconds: float


def run_some(layer: str, operations: int, seeds: Iterable[int]) -> list[Outcome]:
    return [_run(layer, operations, seed) for seed in seeds]


def _run(layer: str, operations: int, seed: int) -> Outcome:
    started = time.process_time()
    counts: dict[str, float] = {}
    failure = ""
    try:
        report = asdict((LAYERS | DISASTERS)[layer](seed, operations))
        counts = {name: value for name, value in report.items() if name != "seed"}
    except Exception:
        failure = traceback.format_exc()
    return Outcome(seed, counts, failure, time.process_time() - started)


def run_layer(layer: str, seeds: range, operations: int, workers: int) -> int:
    """Gives how many failed."""
    total: Counter[str] = Counter()
    seconds, failed = 0.0, []
    chunks = [seeds[start : start + SEEDS_PER_JOB] for start in range(0, len(seeds), SEEDS_PER_JOB)]
    with ProcessPoolExecutor(workers) as pool:
        for outcomes in pool.map(partial(run_some, layer, operations), chunks):
            for outcome in outcomes:
                total.update(outcome.counts)
                seconds += outcome.seconds
                if outcome.failure:
                    failed.append(outcome.seed)
                    print(f"{layer} seed {outcome.seed} failed\n{outcome.failure}", file=sys.stderr)
    counted = ", ".join(f"{value:.0f} {name.replace('_', ' ')}" for name, value in total.items())
    print(
        f"{layer}: {len(seeds)} seeds ran, {len(failed)} failed {failed or ''}: {counted}; "
        f"{seconds:.1f} s of CPU, {len(seeds) / seconds:.1f} seeds per second of CPU",
        flush=True,
    )
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--operations", type=int, default=100, help="client operations per run")
    parser.add_argument("--layer", choices=LAYERS | DISASTERS, help="only this one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    layers = [arguments.layer] if arguments.layer else list(LAYERS)
    failed = sum(
        run_layer(layer, seeds, arguments.operations, arguments.workers) for layer in layers
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
