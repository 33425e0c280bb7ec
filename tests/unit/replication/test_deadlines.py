"""Deadlines fire once, in order, not before their time, however often they were moved."""

from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.deadlines import SWEPT_LENGTH_MIN, Deadlines

K = TypeVar("K")


def due(deadlines: Deadlines[K], now: float) -> list[K]:
    found = []
    while (key := deadlines.pop_due(now)) is not None:
        found.append(key)
    return found


def test_moved_later_moved_earlier_and_cancelled() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at in [("later", 1.0), ("earlier", 9.0), ("never", 1.0), ("later", 5.0)]:
        deadlines.set(key, at)
    deadlines.set("earlier", 2.0)
    deadlines.cancel("never")
    deadlines.cancel("unknown")
    assert deadlines.next_at() == 2.0
    assert due(deadlines, 1.5) == []
    assert due(deadlines, 2.0) == ["earlier"]
    assert due(deadlines, 4.9) == []
    assert due(deadlines, 9.0) == ["later"]
    assert deadlines.next_at() is None
    assert len(deadlines) == 0


def test_a_deadline_moved_while_another_fires_does_not_fire() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("first", 1.0)
    deadlines.set("second", 1.0)
    assert deadlines.pop_due(1.0) == "first"
    deadlines.set("second", 2.0)
    assert deadlines.pop_due(1.0) is None


def test_heartbeats_do_not_grow_the_heap() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for beat in range(1_000):
        for member in range(10):
            deadlines.set(member, beat + 10.0)
    assert len(deadlines._heap) == 10


def test_nobody_wakes_up_for_each_deadline_that_was_moved() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for member in range(1_000):
        deadlines.set(member, 45.0 + member / 200)
    for member in range(1_000):
        deadlines.set(member, 85.0 + member / 200)
    looks, now = 0, 0.0
    while (at := deadlines.next_at()) is not None and at < 85.0:
        looks, now = looks + 1, at
        assert deadlines.pop_due(now) is None
    assert looks < 50
    assert due(deadlines, 85.0) == [0]


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 4), st.integers(0, 20)),
        max_size=60,
    )
)
def test_agrees_with_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, float] = {}
    now = 0.0
    for step, key, amount in steps:
        if step == "set":
            deadlines.set(key, now + amount)
            model[key] = now + amount
        elif step == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            now += amount / 4
            fired = due(deadlines, now)
            expected = {k for k, at in model.items() if at <= now}
            assert set(fired) == expected
            assert [model[k] for k in fired] == sorted(model[k] for k in fired)
            for key in expected:
                del model[key]
        next_at = deadlines.next_at()
        if model:
            assert next_at is not None
            assert next_at <= min(model.values())


def test_cancelled_deadlines_that_are_far_away_take_no_room() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(-1, 5.0)
    for key in range(20 * SWEPT_LENGTH_MIN):
        deadlines.set(key, 1e9)
        deadlines.cancel(key)
    assert len(deadlines._heap) < 2 * SWEPT_LENGTH_MIN
    assert deadlines.pop_due(5.0) == -1
    assert deadlines.pop_due(2e9) is None
