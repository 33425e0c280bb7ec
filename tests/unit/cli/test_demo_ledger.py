"""The demo's books of the readings: they must find what is missing, swapped or doubled."""

import pytest

from penstock.cli.demo.events import Acknowledged, Assigned, ClusterSeen, Consumed, Failed, Finished
from penstock.cli.demo.failover import Failover, Phase
from penstock.cli.demo.ledger import Arrivals, Latencies, Ledger
from penstock.cli.demo.readings import Reading, parse


def acknowledged(
    offset: int, *, at_s: float = 0.0, sent_us: int = 0, partition: int = 0
) -> Acknowledged:
    reading = Reading(sensor="s", number=offset, temperature=20.0, at_us=sent_us)
    return Acknowledged(
        reading=reading, partition=partition, offset=offset, at_us=sent_us + 2_000, at_s=at_s
    )


def consumed(number: int, *, offset: int, controller: str = "one", sent_us: int = 0) -> Consumed:
    return Consumed(
        controller=controller,
        sensor="s",
        number=number,
        partition=0,
        offset=offset,
        sent_us=sent_us,
        latency_ms=1.0,
    )


def ledger_of(numbers: list[int], *, sent: int) -> Ledger:
    """The log holds these numbers one after the other."""
    ledger = Ledger()
    for offset in range(sent):
        ledger.take(acknowledged(offset))
    for offset, number in enumerate(numbers):
        ledger.take(consumed(number, offset=offset))
    ledger.take(Finished(sent={"s": sent}))
    return ledger


def test_everything_in_order_is_complete() -> None:
    ledger = ledger_of([0, 1, 2], sent=3)
    assert ledger.is_complete()
    assert (ledger.produced, ledger.consumed["one"], ledger.out_of_order) == (3, 3, 0)
    assert ledger.acknowledgements.percentile(0.5) == 2.0


def test_nothing_is_complete_before_the_sensors_are_done() -> None:
    assert not Ledger().is_complete()


@pytest.mark.parametrize("numbers", [[0, 2], [0, 1], [1, 2], []])
def test_a_reading_that_never_came_is_missing(numbers: list[int]) -> None:
    ledger = ledger_of(numbers, sent=3)
    assert not ledger.is_complete()
    assert ledger.missing() == 3 - len(numbers)


def test_a_gap_is_seen_while_the_sensors_still_send() -> None:
    arrivals = Arrivals()
    for number in (0, 1, 4, 6):
        arrivals.take("s", number)
    assert arrivals.skipped() == 3
    for number in (2, 3, 5):
        arrivals.take("s", number)
    assert arrivals.skipped() == 0


def test_swapped_readings_are_out_of_order() -> None:
    ledger = ledger_of([1, 0], sent=2)
    assert (ledger.out_of_order, ledger.missing()) == (1, 0)


def test_a_reading_that_is_in_the_log_twice_is_doubled() -> None:
    ledger = ledger_of([0, 1, 1, 2], sent=3)
    assert (ledger.arrivals.doubled, ledger.redelivered) == (1, 0)


def test_a_record_that_the_group_delivers_again_is_not_doubled() -> None:
    ledger = ledger_of([0, 1], sent=2)
    ledger.take(consumed(1, offset=1, controller="two"))
    assert ledger.is_complete()
    assert (ledger.redelivered, ledger.arrivals.doubled, ledger.out_of_order) == (1, 0, 0)


def test_a_reading_that_waited_for_the_controllers_to_join_is_not_timed() -> None:
    ledger = Ledger()
    ledger.take(consumed(0, offset=0, sent_us=4))
    ledger.joined_us = 5
    ledger.take(consumed(1, offset=1, sent_us=4))
    assert ledger.deliveries.counts.total() == 0
    ledger.take(consumed(2, offset=2, sent_us=5))
    assert ledger.deliveries.counts.total() == 1


def test_lag_is_what_is_acknowledged_but_not_seen() -> None:
    ledger = Ledger()
    ledger.take(Assigned(controller="one", partitions=frozenset({0})))
    ledger.take(Assigned(controller="two", partitions=frozenset({1})))
    for offset in range(5):
        ledger.take(acknowledged(offset))
    ledger.take(consumed(0, offset=0))
    ledger.note_lag()
    assert (ledger.lag(), ledger.lag("one"), ledger.lag("two"), ledger.lag_max) == (4, 4, 0, 4)


def test_the_partitions_are_shared_when_each_controller_has_some_and_none_is_left() -> None:
    ledger = Ledger()
    for name, share, is_shared in (
        ("one", {0, 1, 2}, False),
        ("two", {2}, True),
        ("one", {0}, False),
        ("one", {0, 1}, True),
    ):
        ledger.take(Assigned(controller=name, partitions=frozenset(share)))
        assert ledger.is_shared_by(("one", "two"), 3) is is_shared


def test_a_failed_thread_fails_the_demo() -> None:
    with pytest.raises(ValueError, match="broken"):
        Ledger().take(Failed(error=ValueError("broken")))


def test_percentiles() -> None:
    latencies = Latencies()
    for value in range(1, 101):
        latencies.add(float(value))
    assert (latencies.percentile(0.5), latencies.percentile(0.99)) == (50.0, 99.0)
    assert Latencies().percentile(0.5) == 0.0


def test_readings_travel_as_records() -> None:
    reading = Reading(sensor="s-1", number=3, temperature=20.5, at_us=1_700_000_000_123_456)
    assert parse(reading.value()) == reading
    assert b'"at": "2023-11-14T22:13:20.123456+00:00"' in reading.value()


# The failover

LEADERS = {0: 2, 1: 2, 2: 3}


def failover_of(*events: Acknowledged, killed_s: float) -> Failover:
    """Node 2 is killed at that time, by both clocks, after partitions 0 to 2 had a write at 0."""
    failover = Failover()
    for partition in LEADERS:
        failover.acknowledged(acknowledged(0, at_s=0.0, partition=partition))
    killed = False
    for event in events:
        if event.at_s > killed_s and not killed:
            killed = True
            failover.killed(2, LEADERS, at_s=killed_s, at_us=round(killed_s * 1e6))
        failover.acknowledged(event)
    return failover


def write(at_s: float, *, sent_s: float, partition: int = 0) -> Acknowledged:
    return acknowledged(1, at_s=at_s, sent_us=round(sent_s * 1e6), partition=partition)


def test_the_victim_leads_most_of_the_partitions_with_writes() -> None:
    failover = Failover()
    assert failover.victim(LEADERS) is None
    failover.acknowledged(acknowledged(0, partition=2))
    assert failover.victim(LEADERS) == 3
    failover.acknowledged(acknowledged(0, partition=0))
    failover.acknowledged(acknowledged(0, partition=1))
    assert failover.victim(LEADERS) == 2
    assert failover.victim(LEADERS | {1: -1}) is None


def test_the_pause_is_the_longest_time_without_an_acknowledgement() -> None:
    failover = failover_of(
        write(9.9, sent_s=9.8, partition=0),
        write(9.9, sent_s=9.8, partition=1),
        # Still from the old leader: it was on its way.
        write(10.1, sent_s=9.9, partition=0),
        write(11.0, sent_s=10.5, partition=0),
        write(11.5, sent_s=10.0001, partition=1),
        killed_s=10.0,
    )
    assert failover.phase is Phase.MOVED
    assert failover.pause_s == pytest.approx(1.6)
    assert failover.moved_s == 11.5


def test_the_failover_is_over_when_every_partition_of_the_node_takes_new_writes() -> None:
    failover = failover_of(
        write(10.1, sent_s=9.9, partition=0),
        write(10.2, sent_s=9.9, partition=1),
        write(11.0, sent_s=10.5, partition=0),
        # Another node led this one all the time.
        write(11.2, sent_s=11.1, partition=2),
        killed_s=10.0,
    )
    assert failover.phase is Phase.DOWN


def test_in_sync_is_what_was_asked_after_the_restart() -> None:
    ledger = Ledger()
    ledger.take(ClusterSeen(leaders=LEADERS, under_replicated=0, at_s=4.0))
    assert not ledger.is_in_sync_since(5.0)
    ledger.take(ClusterSeen(leaders=LEADERS, under_replicated=1, at_s=6.0))
    assert not ledger.is_in_sync_since(5.0)
    ledger.take(ClusterSeen(leaders=LEADERS, under_replicated=0, at_s=7.0))
    assert ledger.is_in_sync_since(5.0)
