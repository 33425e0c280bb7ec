"""Proves that a group comes to its end although leaders must read from disk what followers lack."""

from collections.abc import Sequence

import pytest

from penstock.model.ids import LogIndex
from penstock.raft.entries import Entry
from penstock.replication.cold_entries import ColdEntries, Outcome
from penstock.replication.recent_entries import GroupEntries
from tests.sim.replicas.run import run_seed

SEEDS = range(301, 306)


def test_every_invariant_holds_when_leaders_keep_nothing_for_followers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrivals = 0
    came = ColdEntries.came

    def keep_nothing(self: GroupEntries, entries: Sequence[Entry]) -> None: ...

    def count(self: ColdEntries, low: LogIndex, outcome: Outcome) -> None:
        nonlocal arrivals
        arrivals += 1
        came(self, low, outcome)

    monkeypatch.setattr(GroupEntries, "add", keep_nothing)
    monkeypatch.setattr(ColdEntries, "came", count)
    reports = [run_seed(seed) for seed in SEEDS]
    assert sum(report.acknowledged for report in reports) > 50 * len(SEEDS)
    assert arrivals > 10 * len(SEEDS)
