"""Proves that the tests notice bugs between the core, the disk and the wire.

Random runs catch most of them. What costs time and not safety, or is caught by the core behind it,
has a directed test.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.model.errors import StorageDamaged
from penstock.records.batch import CorruptBatch
from tests.sim.mutation import Mutation, hunt
from tests.sim.replicas import test_hanging_disks, test_lost_disks, test_tails, test_throttles
from tests.sim.replicas.mutations import ALL
from tests.sim.replicas.run import run_seed
from tests.unit.replication import test_cold_entries, test_exchange, test_group, test_refill
from tests.unit.storage import test_crashes, test_hard_states, test_log, test_recovery

SEEDS_MAX = 400
# How a test notices a bug: by itself, or because what it uses refuses to go on.
NOTICED = (AssertionError, CorruptBatch, StorageDamaged, pytest.fail.Exception)
# Saves two minutes. A change of the code may move them, and then a warning says so.
KNOWN_SEEDS = {
    "a leader asks nobody whether it still leads": 11,
    "a log start that was truncated takes effect": 30,
    "a refused heartbeat is not followed up": 149,
    "a snapshot carries no producers": 23,
    "a truncation leaves the offsets as they were": 11,
    "a write that hangs is taken back and tried again": 36,
    "compaction drops the last batch of a producer": 71,
    "votes that a start found are not synced": 142,
}


def _beats() -> None:
    with tempfile.TemporaryDirectory() as path:
        test_group.test_only_the_leader_s_beats_in_the_own_term_are_accepted(Path(path))


def _crashes() -> None:
    test_crashes.test_every_crash_is_survived("lazy syncs")


def _lost_votes() -> None:
    for chance in range(10):
        test_hard_states.test_what_a_failed_sync_lost_is_durable_before_the_next_process_uses_it(
            chance
        )


def _whole_again() -> None:
    test_refill.test_a_replica_is_not_whole_before_it_holds_what_it_acknowledged_to_its_leader(
        ends_at=46, is_whole=False
    )


def _tails() -> None:
    test_recovery.test_tails_that_are_synced_together_are_there_after_a_power_loss(together=True)


DIRECTED: dict[str, Callable[[], None]] = {
    # Here every write is synced before its checkpoint is due.
    "a checkpoint is written before the data that it names": _crashes,
    # Power must fail between the write to a new segment and its sync, which is next.
    "a closed segment is not synced": _crashes,
    # The same bytes are written again in the same place, unless the power fails just then.
    "a write that failed is not cut back": (
        test_log.test_a_failed_write_that_cant_be_cut_back_is_cut_before_the_next
    ),
    # Only a batch that is larger than several before it, at the very begin of a segment, shows it.
    "indexes stay when their segment is cut": (
        test_log.test_an_index_of_what_was_cut_off_is_not_taken_for_one_of_what_came_after
    ),
    "a leader whose disk hangs keeps its leadership": (
        test_hanging_disks.test_a_leader_whose_disk_hangs_is_replaced
    ),
    "a replica whose disk hangs stands for election": (
        test_hanging_disks.test_a_replica_whose_disk_hangs_does_not_stand_for_election
    ),
    "a group accepts any sender of beats": _beats,
    "a node that comes back with an empty disk keeps its identity": (
        test_lost_disks.test_an_empty_disk_has_no_vote
    ),
    "a replica that lost its tail votes as if it had it": (
        test_lost_disks.test_a_log_without_its_end_makes_no_leader_until_it_is_filled_again
    ),
    "a replica that lost its tail counts again at once": (
        test_lost_disks.test_a_log_without_its_end_makes_no_leader_until_it_is_filled_again
    ),
    "broken connections are not told to the groups": (
        test_exchange.test_replicas_hear_of_a_lost_node_and_again_when_it_is_known_to_be_dead
    ),
    "a recovered tail is synced, not written again": (
        test_tails.test_after_a_power_cut_of_all_nodes_somebody_leads_soon
    ),
    "tails that are synced together are not written again": _tails,
    "a replica is whole again before it holds what it acknowledged": _whole_again,
    "tails count as synced although the disk refused": (
        test_recovery.test_tails_are_synced_one_by_one_if_the_whole_disk_refuses
    ),
    "votes that a start found are synced, not written again": _lost_votes,
    "a log is cut without a note of where it ended": (
        test_tails.test_rot_at_the_ends_of_two_logs_of_three_loses_nothing_or_stops
    ),
    "every bad end of a log is taken for torn": (
        test_tails.test_rot_at_the_ends_of_two_logs_of_three_loses_nothing_or_stops
    ),
    "a throttle holds back a voter that is in sync": (
        test_throttles.test_the_lowest_throttle_costs_producers_no_time
    ),
    "what was read of a log that was cut meanwhile is sent": (
        test_cold_entries.test_what_was_asked_for_before_the_log_became_another_one_is_void
    ),
}


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    hunting = partial(hunt, mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_seed)
    test = DIRECTED.get(mutation.name, hunting)
    with pytest.raises(NOTICED):
        test()


def test_every_directed_test_belongs_to_a_mutation() -> None:
    assert DIRECTED.keys() <= {mutation.name for mutation in ALL}


@pytest.mark.soak
def test_every_directed_test_passes_without_its_mutation() -> None:
    """Each of them also runs where it is defined, so this is not needed every time."""
    for test in set(DIRECTED.values()):
        test()
