"""`python -m tests.sim --seeds N --seed K`: runs seeds K to K+N-1 and says how many failed."""

import argparse
import sys
import time
import traceback

from tests.sim.run import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--operations", type=int, default=100, help="client operations per run")
    arguments = parser.parse_args()
    started = time.process_time()
    failed, steps, committed, changes, reads = [], 0, 0, 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        try:
            report = run_seed(seed, arguments.operations)
        except Exception:
            failed.append(seed)
            print(f"seed {seed} failed\n{traceback.format_exc()}", file=sys.stderr)
            continue
        steps, committed = steps + report.steps, committed + report.committed
        changes, reads = changes + report.membership_changes, reads + report.reads
        if arguments.seeds == 1:
            print(report)
    seconds = time.process_time() - started
    print(
        f"{arguments.seeds} seeds ran, {len(failed)} failed {failed or ''}: {steps} steps, "
        f"{committed} committed, {reads} reads, {changes} membership changes, "
        f"{seconds:.1f} s of CPU, {arguments.seeds / seconds:.1f} seeds per second"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
