"""Proves that a group comes to its end although connections often take no entries for a while."""

import pytest

from penstock.model.ids import ReplicaId
from penstock.replication import exchange
from penstock.replication.exchange import Exchange
from tests.sim.replicas.run import run_seed

SEEDS = range(201, 211)


def test_every_invariant_holds_when_connections_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    # What runs send is small, so little must be enough.
    monkeypatch.setattr(exchange, "APPEND_QUEUE_BYTES_MAX", 50)
    refused = 0
    has_room = Exchange.has_room

    def count(self: Exchange, to: ReplicaId) -> bool:
        nonlocal refused
        is_free = has_room(self, to)
        refused += not is_free
        return is_free

    monkeypatch.setattr(Exchange, "has_room", count)
    reports = [run_seed(seed) for seed in SEEDS]
    assert sum(report.acknowledged for report in reports) > 50 * len(SEEDS)
    assert refused > len(SEEDS)
