"""Pauses before restarts grow up to a bound, end at a limit, and begin again after a good run."""

from penstock.pipelines.running.restarting import Restarts
from penstock.pipelines.specification.model import Restart

POLICY = Restart(attempts=4, pause_s=1.0, pause_s_max=3.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def rests(restarts: Restarts, clock: Clock) -> float | None:
    """For how long the flow rests after it failed at once; None if it is not started again."""
    restarts.began("raw")
    if not restarts.may_rest("raw", "It broke."):
        return None
    began = clock.now_s
    while restarts.rested() is None:
        clock.now_s += 0.5
    return clock.now_s - began


def test_pauses_double_up_to_a_bound_and_attempts_are_limited() -> None:
    clock = Clock()
    restarts = Restarts(POLICY, clock)
    assert [rests(restarts, clock) for _ in range(6)] == [1, 2, 3, 3, None, None]
    assert restarts.total["raw"] == 4


def test_a_flow_that_ran_well_for_long_enough_begins_again_to_count() -> None:
    clock = Clock()
    restarts = Restarts(POLICY, clock)
    assert [rests(restarts, clock) for _ in range(3)] == [1, 2, 3]
    restarts.began("raw")
    restarts.did_a_batch("raw")
    assert rests(restarts, clock) == 3, "one quick batch is not enough"
    restarts.began("raw")
    clock.now_s += POLICY.pause_s_max
    restarts.did_a_batch("raw")
    assert rests(restarts, clock) == 1


def test_the_one_that_waited_longest_is_first() -> None:
    clock = Clock()
    restarts = Restarts(POLICY, clock)
    for flow in ("a", "b"):
        restarts.began(flow)
        restarts.may_rest(flow, "It broke.")
        clock.now_s += 0.25
    clock.now_s += 5
    assert restarts.rested() == "a"
    restarts.began("a")
    assert restarts.rested() == "b"
    assert restarts.give_up() == ["b"]
    assert restarts.rested() is None


def test_a_pause_stays_bounded_after_many_attempts() -> None:
    assert Restart(attempts=10**6).pause_before(10**6) == Restart().pause_s_max
