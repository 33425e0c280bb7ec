"""Mutated frames through live connections: error replies or closed connections, no more.

Every API in every version is mutated. Each frame passes a real connection of a real node. Nothing
may be logged as a bug, no reply may be out of order or unreadable, the loop may never be held up,
and memory stays flat. The long tests send a million of them.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.frontdoor.kafka.api_table import APIS

PROCESSES = 2
MIB = 1024 * 1024
LOOP_CPU_SECONDS_MAX = 0.5
ROOT = Path(__file__).resolve().parents[2]


def start(seed: int, frames: int, data_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.wire.live_fuzz", "--seed", str(seed)]
    command += ["--frames", str(frames), "--data-dir", str(data_dir)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(output)
    return report


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("frames", "resident_growth_max"),
    [
        (20_000, 4 * MIB),
        pytest.param(200_000, 4 * MIB, marks=pytest.mark.soak),
        pytest.param(1_000_000, 16 * MIB, marks=pytest.mark.soak),
    ],
)
def test_mutated_frames_do_no_harm(tmp_path: Path, frames: int, resident_growth_max: int) -> None:
    processes = [
        start(seed, frames // PROCESSES, tmp_path / str(seed)) for seed in range(1, PROCESSES + 1)
    ]
    reports = [finish(process) for process in processes]
    print(json.dumps(reports, indent=2))
    assert sum(report["frames"] for report in reports) >= frames
    for report in reports:
        assert report["complaints"] == []
        assert set(report["answered"]) == {key.name for key in APIS}, "none was left out"
        assert report["replies"] > report["frames"] / 10, "many got past the decoder"
        assert report["closed_by_broker"] > report["frames"] / 20, "and many did not"
        assert report["resident_after"] - report["resident_before"] < resident_growth_max
        assert report["loop_cpu_seconds_max"] < LOOP_CPU_SECONDS_MAX
        assert report["budget_used"] == 0
