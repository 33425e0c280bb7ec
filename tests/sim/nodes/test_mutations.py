"""Proves that runs of whole nodes notice bugs in the metadata, in groups and in moves.

Random runs catch most of them. What needs two leaders at a time, which are rare, has a directed
test.
"""

from collections.abc import Callable
from functools import partial

import pytest

from tests.sim.mutation import Mutation, hunt, marked
from tests.sim.nodes import (
    test_bit_rot,
    test_changes_without_answer,
    test_cut_off_coordinators,
    test_cut_off_leaders,
    test_followers,
)
from tests.sim.nodes.mutations import ALL
from tests.sim.nodes.run import run_seed
from tests.unit.broker import test_readers
from tests.unit.groups import test_group_static_members
from tests.unit.replication import test_exchange, test_replica
from tests.unit.storage import test_misplaced_batches

SEEDS_MAX = 150
# Those that many seeds, or long ones, are needed for.
SLOW = {
    "a fetch session forgets where its consumer has come to",
    "a node refuses by its own copy, however old it is",
    "a reader does not hear of news",
    "a snapshot is believed without its checksum",
}
# Saves two minutes. A change of the code may move them, and then a warning says so.
KNOWN_SEEDS = {
    "a closed log has no checkpoint": 10,
    "a feed's snapshot claims more than was applied": 7,
    "a follower shows all that it has": 17,
    "a host's snapshot holds what is not committed": 6,
    "a hosted state answers before its records are committed": 12,
    "a leader commits what its own disk lacks": 57,
    "a leader sends consumers to followers that lag": 26,
    "whatever lies where a change was to go is taken for it": 81,
}


def _bad_snapshots() -> None:
    # About one run in five hits a bit that matters.
    test_bit_rot.test_a_node_with_bad_files_recovers_or_is_repaired_and_nothing_is_lost(
        ".snapshot", seeds=range(1, 60)
    )


def _old_ranges() -> None:
    # About one run in two thousand flips such a bit in what is sent.
    test_misplaced_batches.test_a_consumer_never_gets_past_a_batch_that_is_not_in_its_place(
        is_compacted=False
    )


DIRECTED: dict[str, Callable[[], None]] = {
    "a change without an answer is decided again": (
        test_changes_without_answer.test_a_growth_whose_answer_is_lost_happens_once
    ),
    # A snapshot is used only after a clean stop, and few of its bits matter.
    "a snapshot is believed without its checksum": _bad_snapshots,
    "a coordinator says alone that something is not there": (
        test_cut_off_coordinators.test_a_coordinator_that_was_cut_off_deletes_nothing_that_it_does_not_know
    ),
    # Nodes are asked for partitions that come back to them too rarely.
    "a reader listens to a replica that is gone": (
        test_readers.test_a_topic_that_is_made_again_is_heard_like_the_one_before
    ),
    # In random runs too few consumers stick to a follower that lags or is being filled.
    "a follower judges offsets that it does not have": (
        test_followers.test_a_follower_that_lags_sends_consumers_back_to_the_leader
    ),
    "a follower that has lost something serves consumers": (
        test_followers.test_a_follower_that_is_filled_again_serves_nobody
    ),
    # Few disks are replaced, and few consumers are sent to their nodes before the leader knows.
    "a leader sends consumers to directories that were lost": (
        test_exchange.test_a_node_that_is_back_with_a_new_directory_is_not_the_replica_that_it_was
    ),
    # It costs a rebalance and breaks nothing.
    "a static member that comes back is a rebalance": (
        test_group_static_members.test_follower_comes_back_without_a_rebalance_once_that_is_stored
    ),
    # Bits flip in few runs, and few of them in an offset that is copied before it is read.
    "a look through a segment believes its offsets": (
        test_misplaced_batches.test_compaction_copies_nothing_that_is_not_in_its_place
    ),
    "old ranges are sent unchecked": _old_ranges,
    "what an earlier process wrote needs no check": (
        test_misplaced_batches.test_what_an_earlier_process_wrote_is_checked_before_it_is_sent
    ),
    # Few readers ask a leader in the moment before its first commit.
    "a new leader tells too early where a term ended": (
        test_replica.test_a_leader_that_does_not_know_its_end_yet_ends_no_term_too_early
    ),
    "a leader asks nobody whether it still leads": (
        test_cut_off_leaders.test_a_controller_that_was_cut_off_does_not_tell_what_was_true_before
    ),
}


# What a test notices: a broken promise, or no refusal where there should be one.
_NOTICED = (AssertionError, pytest.fail.Exception)


@pytest.mark.parametrize("mutation", marked(ALL, SLOW))
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    hunting = partial(hunt, mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_seed)
    test = DIRECTED.get(mutation.name, hunting)
    with pytest.raises(_NOTICED):
        test()


def test_every_directed_test_belongs_to_a_mutation() -> None:
    assert DIRECTED.keys() <= {mutation.name for mutation in ALL}
