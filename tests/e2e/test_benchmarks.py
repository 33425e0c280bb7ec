"""Proves that the benchmarks run and report every promised figure; the figures are not judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.probe import cpu_seconds

from tests.documents import ROOT

PROMISED = {
    ("start", "first Metadata answered, median"): 300,
    ("start", "idle resident memory"): 80,
    ("1,000 partitions", "created"): 5,
    ("1,000 partitions", "idle CPU"): 3,
    ("one-message requests", "broker CPU, median round"): 25,
    ("produce 100 B", "broker CPU / client CPU"): 1,
    ("consume 100 B", "broker CPU / client CPU"): 1,
    ("produce 1 KB", "broker CPU / client CPU"): 1,
    ("consume 1 KB", "broker CPU / client CPU"): 1,
    ("restart after kill -9", "first Metadata answered"): 2,
    ("kill -9 of a leader", "next acknowledged write, median"): 1,
    ("kill -9 of a leader", "the same, 99th percentile"): 2,
    ("produce 100 B, three nodes", "total broker CPU, factor 3 / factor 1"): 3.5,
    ("produce 1 KB, three nodes", "total broker CPU, factor 3 / factor 1"): 3.5,
    ("1,000 partitions at factor 3", "idle CPU of the busiest node"): 5,
    ("1,000 partitions at factor 3", "all of them led by others"): 3,
}


@pytest.mark.timeout(300)
def test_the_quick_benchmark_reports_every_promise(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--mode", "quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert outcome.returncode == 0, outcome.stderr
    (report,) = tmp_path.glob("*.json")
    figures = json.loads(report.read_text())["figures"]
    promised = {
        (figure["workload"], figure["name"]): figure["at_most"]
        for figure in figures
        if figure["at_most"] is not None
    }
    assert promised == PROMISED
    assert all(figure["value"] >= 0 for figure in figures)
    for _, name in PROMISED:
        assert name in outcome.stdout


def test_the_cpu_of_a_process_is_measured_finer_than_the_ticks_of_the_kernel() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(1_000))
    assert 0 < cpu_seconds(os.getpid()) - before < 1
