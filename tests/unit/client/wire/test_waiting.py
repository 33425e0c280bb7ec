"""What the client's threads wait on is bounded, and nobody waits forever."""

import logging
import threading

import pytest

from penstock.client.errors import ClientError, no_answer
from penstock.client.wire import patience as patience_module
from penstock.client.wire.errors import GaveUp
from penstock.client.wire.handover import Handover
from penstock.client.wire.outbox import Outbox
from penstock.client.wire.partition_queue import Outgoing
from penstock.client.wire.patience import PAUSE_S_MAX, Patience, Stopped, Waits, duration_words
from tests.unit.client.wire.fake_broker import PATIENCE_S, at


def outgoing(size: int) -> Outgoing:
    return Outgoing(at(), bytearray(size), 3)


def test_pauses_grow_up_to_a_bound_and_start_again_after_progress() -> None:
    patience = Patience("waiting", lambda: 60.0)
    pauses = [patience.next_pause_s("nothing") for _ in range(20)]
    assert pauses[0] < 0.03
    assert 0.7 * PAUSE_S_MAX < pauses[-1] < 1.3 * PAUSE_S_MAX
    patience.progress()
    assert patience.next_pause_s("nothing") < 0.03


def test_patience_ends_with_its_reason() -> None:
    patience = Patience("waiting", lambda: -1.0)
    with pytest.raises(GaveUp, match="Gave up on waiting after -1 s without progress: nothing"):
        patience.check("nothing")
    with pytest.raises(ClientError, match="its own sentence"):
        patience.check(ClientError("its own sentence"))


def test_a_stop_ends_a_pause() -> None:
    stop = threading.Event()
    patience = Patience("waiting", lambda: 60.0, stop=stop)
    stop.set()
    with pytest.raises(Stopped):
        patience.pause("nothing")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience_module, "time", made)
    return made


def test_a_long_wait_is_reported_when_it_begins_and_when_it_ends_and_once_for_all_who_wait(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    waits, gone = Waits(), no_answer("x:1", "connection refused")
    reading, writing = (Patience(what, lambda: 600.0, waits=waits) for what in ("a", "b"))
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            for one in (reading, writing):
                one.check(gone)
            clock.now_s += 1
        reading.progress()
        reading.progress()
        writing.progress()
    assert caplog.messages == [
        "No broker answers at x:1: connection refused. Waiting up to 10 min (a).",
        "Continuing after 30 s (a).",
    ]


def test_one_that_ended_otherwise_leaves_the_word_to_others(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits()
    first = Patience("a", lambda: 600.0, waits=waits)
    second = Patience("b", lambda: 600.0, waits=waits)
    clock.now_s += 5
    first.check("it has no leader")
    del first
    second.check("it has no leader")
    assert [one.removesuffix(".") for one in caplog.messages] == [
        f"No progress: it has no leader. Waiting up to 10 min ({name})" for name in "ab"
    ]


def test_short_waits_and_those_that_end_soon_with_an_error_are_not_reported(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    blip, hurried = Patience("a", lambda: 600.0), Patience("b", lambda: 5.0)
    clock.now_s += 1
    blip.check("nothing")
    blip.progress()
    clock.now_s += 3
    hurried.check("nothing")
    assert caplog.messages == []


def test_what_brokers_say_counts_from_when_they_are_back(clock: Clock) -> None:
    patience = Patience("reading", lambda: 600.0)
    clock.now_s += 300
    patience.check(no_answer("x:1", "connection refused"))
    clock.now_s += 2
    assert (patience.waited_s, patience.refused_s) == (302, 2)
    patience.check("the log is too short", refused_s_max=3)
    clock.now_s += 2
    with pytest.raises(GaveUp, match="after 3 s without progress: the log is too short"):
        patience.check("the log is too short", refused_s_max=3)
    patience.check("its leader is away", is_silent=True, refused_s_max=3)


@pytest.mark.parametrize(("seconds", "words"), [(600, "10 min"), (90, "90 s"), (0.5, "0.5 s")])
def test_times_are_said_in_words(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_a_handover_holds_only_so_many_and_keeps_their_order() -> None:
    handover: Handover[int] = Handover(2)
    given: list[int] = []

    def give() -> None:
        for number in range(100):
            handover.give(number)
            given.append(number)
        handover.finish()

    giver = threading.Thread(target=give)
    giver.start()
    taken = []
    for number in handover.take_all():
        taken.append(number)
        # Two lie there, one was just taken, and one may be given but not yet noted.
        assert len(given) <= number + 4
    giver.join(PATIENCE_S)
    assert taken == list(range(100))


def test_a_failure_is_told_after_what_came_before_it() -> None:
    handover: Handover[int] = Handover(2)
    handover.give(1)
    handover.finish(ClientError("broken"))
    values = handover.take_all()
    assert next(values) == 1
    with pytest.raises(ClientError, match="broken"):
        next(values)


def test_a_giver_is_let_go_when_nothing_else_is_wanted() -> None:
    handover: Handover[int] = Handover(1)
    outcomes: list[bool] = []
    giver = threading.Thread(target=lambda: outcomes.extend([handover.give(1), handover.give(2)]))
    giver.start()
    handover.abandon()
    giver.join(PATIENCE_S)
    assert not giver.is_alive()
    assert outcomes[-1] is False
    assert list(handover.take_all()) == []


def test_an_outbox_makes_callers_wait_while_too_much_is_held() -> None:
    outbox = Outbox(100)
    first, second = outgoing(80), outgoing(40)
    assert outbox.put(first)
    caller = threading.Thread(target=outbox.put, args=(second,))
    caller.start()
    assert outbox.take() == [first]
    caller.join(0.05)
    assert caller.is_alive()
    outbox.settle([first])
    caller.join(PATIENCE_S)
    assert outbox.take() == [second]
    assert outbox.acknowledged == 3


def test_a_batch_larger_than_all_that_may_be_held_is_taken_alone() -> None:
    outbox = Outbox(10)
    assert outbox.put(outgoing(50))


def test_only_the_first_of_several_puts_rings() -> None:
    outbox = Outbox(100)
    assert [outbox.put(outgoing(1)) for _ in range(3)] == [True, False, False]
    outbox.take()
    assert outbox.put(outgoing(1))


def test_the_first_failure_reaches_whoever_waits_and_whoever_comes_later() -> None:
    outbox = Outbox(10)
    outbox.put(outgoing(10))
    caught: list[str] = []

    def wait(what: str) -> None:
        try:
            outbox.put(outgoing(10)) if what == "put" else outbox.wait_until_empty()
        except ClientError as error:
            caught.append(f"{what}: {error}")

    waiters = [threading.Thread(target=wait, args=(what,)) for what in ("put", "flush")]
    for waiter in waiters:
        waiter.start()
    outbox.fail(ClientError("first"))
    outbox.fail(ClientError("second"))
    for waiter in waiters:
        waiter.join(PATIENCE_S)
    wait("put")
    assert sorted(caught) == ["flush: first", "put: first", "put: first"]
