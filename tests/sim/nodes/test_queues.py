"""Random runs of whole nodes with the workers of a share group (KIP-932), and what such runs must
notice."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import waiting
from tests.sim.layers import QUEUE_WORKERS
from tests.sim.mutation import Mutation, first_is_fast, hunt, marked
from tests.sim.nodes import test_poisoned
from tests.sim.nodes.queue_mutations import ALL
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import run_seed
from tests.unit.broker import (
    test_dead_letters,
    test_queue_topics,
    test_queues,
    test_redriving,
)
from tests.unit.queues import test_fencing

SEEDS_PER_BLOCK = 8
SEEDS_MAX = 100
# Those that many seeds, or long ones, are needed for.
SLOW = {
    "a pause of one topic is one of all",
    "changes are forgotten when the log is read again",
    "leases end by the clock on the wall",
    "nobody is woken when a record is due",
    "records leave before their lease is stored",
    "the start of a queue is found out twice",
}
# A change of the code may move them, and then a warning says so.
KNOWN_SEEDS = {
    "what is for later is only known in memory": 18,
    "a renewed lease ends at its old time": 31,
    "an ack is answered before it is stored": 7,
    "the start of a queue is found out twice": 41,
    "an old deadline ends a lease that is not stored yet": 1705,
    "a record that is too old is delivered": 8,
    "what is too old is delivered when its key is free": 9,
    "a record expires in somebody's hands": 8,
    "the group's time to live comes before the record's": 8,
}


def in_directory(test: Callable[[Path], None]) -> Callable[[], None]:
    @wraps(test)
    def directed() -> None:
        with TemporaryDirectory() as place:
            test(Path(place))

    return directed


EVERY_DEATH = test_poisoned.test_one_node_dies_at_every_step
DIRECTED: dict[str, Callable[[], None]] = {
    # No network delivers a call twice, and whoever gives up on one opens the queue again.
    "a change counts twice": test_fencing.test_a_change_that_arrives_again_is_refused,
    # Leaders that were replaced, do not know it, and still reach the coordinator are rare.
    "a change counts from any leader": (
        test_fencing.test_a_change_of_an_earlier_opening_is_refused_although_it_would_be_the_next
    ),
    "a change of an earlier term counts": (
        test_fencing.test_a_change_of_an_earlier_term_is_refused_although_it_would_be_the_next
    ),
    "a leader of an earlier term opens a queue": (
        test_fencing.test_a_leader_of_an_earlier_term_does_not_get_a_queue_back
    ),
    "a leader asks nobody before it refuses an acknowledgement": in_directory(
        test_queues.test_a_leader_that_nobody_confirms_refuses_no_acknowledgement
    ),
    "a leader asks nobody before it renews a lease": in_directory(
        test_queues.test_a_leader_that_nobody_confirms_refuses_no_acknowledgement
    ),
    # Topics with queues do not come and go in random runs.
    "a queue outlives its topic": (
        test_queue_topics.test_a_topic_that_is_made_again_has_a_queue_of_its_own
    ),
    # It matters only if a leader fails between a batch and the note of it, with other letters next.
    "the plan of a batch of letters is not stored": in_directory(
        test_dead_letters.test_a_plan_is_stored_before_it_is_sent
    ),
    # These matter only if a leader fails between two steps of a record's way.
    "the sequence of letters is used again after a crash": EVERY_DEATH,
    "records are dead before the topic has their letters": EVERY_DEATH,
    "what is given up is dead at once": EVERY_DEATH,
    "an expired lease is only dropped": EVERY_DEATH,
    "leases of another leader never end": EVERY_DEATH,
    # What is refused and what is made again is rare in random runs, or heals.
    "a refused batch of letters uses its sequence": in_directory(
        test_dead_letters.test_a_refused_batch_gets_shorter_and_uses_no_sequence
    ),
    "a plan outlives its dead-letter topic": (
        test_poisoned.test_one_node_dies_at_every_step_around_the_loss_of_the_dead_letter_topic
    ),
    "letters of letters go in circles": in_directory(
        test_dead_letters.test_letters_of_letters_do_not_go_in_circles
    ),
    "it is not counted how often a record came back": in_directory(
        test_redriving.test_a_record_that_dies_again_and_again_stays_dead
    ),
    "letters are brought back without a note of it": in_directory(
        test_redriving.test_a_record_that_is_still_in_the_log_is_delivered_again
    ),
}

# What a test notices: a broken promise, no refusal where there should be one, or a hang.
_NOTICED = (AssertionError, pytest.fail.Exception, TimeoutError)
# Several times what a directed test takes on a busy machine: without it each hang takes a minute.
_HANGS_AFTER_S = 5.0


def run_with_workers(seed: int) -> RunReport:
    return run_seed(seed, queue_workers=QUEUE_WORKERS)


@pytest.mark.parametrize("block", first_is_fast(2))
def test_every_record_of_a_queue_is_done_once_in_random_runs(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_with_workers(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.delivered for report in reports) > 100 * SEEDS_PER_BLOCK
    assert sum(report.redelivered for report in reports) > 10 * SEEDS_PER_BLOCK
    assert sum(report.acked for report in reports) > 80 * SEEDS_PER_BLOCK
    assert sum(report.refused_acks for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.dead_letters for report in reports) > 2 * SEEDS_PER_BLOCK
    assert sum(report.brought_back for report in reports) > SEEDS_PER_BLOCK // 2
    assert sum(report.delivered_later for report in reports) > 10 * SEEDS_PER_BLOCK
    assert sum(report.delivered_in_order for report in reports) > 10 * SEEDS_PER_BLOCK
    assert sum(report.expired for report in reports) > 5 * SEEDS_PER_BLOCK
    assert sum(report.polls_of_paused for report in reports) > 2 * SEEDS_PER_BLOCK


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_with_workers(3) == run_with_workers(3)


@pytest.mark.parametrize("mutation", marked(ALL, SLOW))
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    monkeypatch.setattr(waiting, "TURNS_S_MAX", _HANGS_AFTER_S)
    hunting = partial(hunt, mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_with_workers)
    test = DIRECTED.get(mutation.name, hunting)
    with pytest.raises(_NOTICED):
        test()


def test_every_directed_test_belongs_to_a_mutation() -> None:
    assert DIRECTED.keys() <= {mutation.name for mutation in ALL}
