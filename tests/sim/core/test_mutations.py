"""Proves that the tests notice bugs: each mutation, injected into the core, must be caught.

Some are caught by random runs, from seed 1 on. The others either break no invariant (they cost
time, not safety) or need a constellation that chance rarely makes; a directed test catches those.
"""

from collections.abc import Callable

import pytest

from penstock.model.ids import LogEnd
from penstock.raft.messages import PeerFault
from tests.sim.core.mutations import ALL
from tests.sim.core.run import run_seed
from tests.sim.mutation import Mutation
from tests.unit.raft import (
    test_doubt,
    test_follower,
    test_leader,
    test_membership,
    test_node,
    test_replication,
    test_roles,
)

SEEDS_MAX = 200
Test = Callable[[], None]


def _freshness() -> None:
    test_roles.test_only_a_candidate_with_a_log_as_fresh_gets_the_vote([1, 1, 2], (9, 1), False)


def _given_up() -> None:
    test_doubt.test_it_votes_as_it_would_have_with_the_log_that_it_had((2, 1), LogEnd(1, 5), False)


DIRECTED: dict[str, Test] = {
    "vote comparing index only": _freshness,
    "old-term entries committed by count (Figure 8)": (
        test_leader.test_entries_of_earlier_terms_are_not_committed_by_counting
    ),
    "stale heartbeat counted for another term": (
        test_node.test_a_heartbeat_of_another_term_or_leader_does_not_count
    ),
    "stale heartbeat answer counted for another term": (
        test_node.test_an_answer_to_another_term_s_heartbeat_does_not_keep_a_leader
    ),
    "a leader without a quorum keeps its leadership": (
        test_leader.test_a_leader_that_hears_from_no_quorum_resigns
    ),
    "a replica that hears from its leader votes for others": (
        test_roles.test_a_replica_that_hears_from_its_leader_supports_no_other
    ),
    "no pre-vote: a cut-off replica raises its term": (
        test_roles.test_a_replica_that_is_cut_off_never_raises_its_term
    ),
    "a learner campaigns": test_roles.test_a_learner_never_campaigns,
    "follower commits beyond what the append proves": (
        test_follower.test_a_commit_notice_beyond_the_log_is_ignored
    ),
    "the window starts again without asking where the logs agree": (
        test_replication.test_an_unreachable_follower_is_probed_before_it_is_sent_more
    ),
    "an acknowledgement says the end of the log, not of the append": (
        test_follower.test_a_late_append_does_not_undo_what_a_later_one_brought
    ),
    "a leader whose host wants it to resign stays": (
        test_leader.test_a_leader_that_its_host_makes_resign_names_a_successor
    ),
    "the death of any node ends loyalty to the leader": (
        test_roles.test_whoever_knows_that_the_leader_s_process_is_gone_does_not_wait
    ),
    "a learner is promoted whatever was committed before": (
        test_membership.test_a_learner_needs_what_was_committed_an_election_time_out_ago
    ),
    "promote before caught up": test_membership.test_a_learner_that_is_behind_is_not_promoted,
    "a leader that removed itself stays": (
        test_membership.test_a_leader_that_removes_itself_leads_until_then_and_names_a_successor
    ),
    "snapshot accepted backwards": (
        test_follower.test_a_snapshot_of_what_is_committed_already_takes_nothing_away
    ),
    "snapshot installed whatever is here already": (
        test_follower.test_a_snapshot_that_the_log_covers_only_commits
    ),
    "read confirmed by a round sent before it": (
        test_leader.test_answers_to_an_older_round_do_not_confirm_a_newer_read
    ),
    "transfer to a lagging node": (
        test_leader.test_a_voter_that_lags_is_made_to_catch_up_before_it_takes_over
    ),
    "the call to take over counts from anyone": (
        test_roles.test_the_call_to_take_over_counts_only_from_the_leader_of_the_term
    ),
    "a vote in doubt counts towards a majority": (
        test_doubt.test_the_whole_log_wins_once_all_voters_answer
    ),
    "what was given up makes up for what is there": _given_up,
}


def _simulate() -> None:
    for seed in range(1, SEEDS_MAX + 1):
        run_seed(seed)


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    # A broken core may also trip over its own assertions, or over what a peer sent it.
    with pytest.raises((AssertionError, PeerFault)):
        DIRECTED.get(mutation.name, _simulate)()


def test_every_directed_test_belongs_to_a_mutation_and_passes_without_it() -> None:
    assert DIRECTED.keys() <= {mutation.name for mutation in ALL}
    for test in DIRECTED.values():
        test()
