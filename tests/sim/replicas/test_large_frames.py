"""Proves that what arrives in large frames may be kept where it lies, read before it is verified.

Frames of a run are small, so here almost every frame counts as a large one. A bug in how their
memory is used again is noticed.
"""

import pytest

from penstock.net import peer_buffer, reusable_buffers
from penstock.replication import peer_codec, peer_frames
from tests.sim.replicas.run import RunReport, run_seed

SEEDS = range(101, 113)
LARGE_BYTES = 100


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (peer_buffer, peer_codec, peer_frames):
        monkeypatch.setattr(module, "LARGE_FRAME_BYTES_MIN", LARGE_BYTES)
    for module in (peer_codec, peer_frames):
        monkeypatch.setattr(module, "SEALED_BYTES_MIN", LARGE_BYTES)


def run_all() -> list[RunReport]:
    return [run_seed(seed) for seed in SEEDS]


def test_every_invariant_holds_when_frames_are_large() -> None:
    reports = run_all()
    assert sum(report.acknowledged for report in reports) > 50 * len(SEEDS)


def test_memory_that_is_used_again_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reusable_buffers, "_is_unused", lambda buffer: True)
    with pytest.raises(AssertionError):
        run_all()
