"""What the client's threads wait on is bounded, and nobody waits for ever."""

import threading

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.errors import GaveUp
from penstock.client.wire.handover import Handover
from penstock.client.wire.outbox import Outbox
from penstock.client.wire.partition_queue import Outgoing
from penstock.client.wire.patience import PAUSE_S_MAX, Patience, Stopped
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
