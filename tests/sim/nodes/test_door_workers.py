"""Random runs of whole nodes with workers that use a queue through doors, beside one of Kafka's
protocol, and what such runs must notice."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.doors import queue_leaders
from penstock.queues import settling
from penstock.queues.commands import Change, Range, RecordState
from penstock.queues.leading import LedQueue
from penstock.queues.settling import Outcome
from penstock.replication.commit import Commit
from tests.sim.mutation import Mutation, Mutations, first_is_fast, hunt
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import run_seed

SEEDS_PER_BLOCK = 4
SEEDS_MAX = 60
WORKERS = 3
DOOR_WORKERS = 2
# A change of the code may move them, and then a warning says so.
KNOWN_SEEDS = {
    "a token counts before that is stored": 19,
    "an extended lease ends at its old time": 6,
}

ALL = Mutations()
mutation = ALL.add

_settle = settling.settle
_submit = LedQueue._submit


@mutation("a token counts before that is stored", (queue_leaders, "settle"))
def answers_early(*args: Any, **kwargs: Any) -> tuple[Sequence[Outcome], Commit]:
    """What was acked is never delivered again, whatever happens to the leader."""
    outcomes, _ = _settle(*args, **kwargs)
    commit = Commit()
    commit.settle(None)
    return outcomes, commit


@mutation("an extended lease ends at its old time", (LedQueue, "_extend"))
def extends_nothing(self: LedQueue, leases: Sequence[Range], lease_ms: int) -> None:
    """Who was given more time has it."""


@mutation("the time of a poll's lease is not stored", (LedQueue, "_submit"))
def forgets_times(self: LedQueue, change: Change) -> Commit:
    """The next leader lets a lease run for as long as it was given."""
    commit = _submit(self, change)
    if self._storing.pending and self._storing.pending[-1] is change:
        self._storing.pending[-1] = replace(change, ranges=tuple(map(_short, change.ranges)))
    return commit


def _short(each: Range) -> Range:
    return each._replace(lease_ms=1) if each.state is RecordState.LEASED else each


def run_with_doors(seed: int) -> RunReport:
    return run_seed(seed, queue_workers=WORKERS, door_workers=DOOR_WORKERS)


@pytest.mark.parametrize("block", first_is_fast(2))
def test_every_record_of_a_queue_is_done_once_by_tokens_too(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_with_doors(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.delivered for report in reports) > 100 * SEEDS_PER_BLOCK
    assert sum(report.redelivered for report in reports) > 10 * SEEDS_PER_BLOCK
    assert sum(report.acked for report in reports) > 80 * SEEDS_PER_BLOCK
    assert sum(report.refused_acks for report in reports) > SEEDS_PER_BLOCK


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    with pytest.raises(AssertionError):
        hunt(mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_with_doors)
