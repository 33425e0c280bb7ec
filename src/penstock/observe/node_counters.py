"""All that one node counts while it works, in one object that is passed to those who count.

A part that gets None instead counts nothing: so simulations and tests need none, and the benchmark
can compare. What is only known when somebody asks (how many partitions, how far groups are behind)
is not here but in `broker/metrics.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from penstock.observe.families import OTHERS, Sample
from penstock.observe.instruments import Bounded, Deliveries, Histogram, Requests, Traffic
from penstock.observe.tracing import SpanCounts

KAFKA: Final = "kafka"
# Topics and queues with series of their own; all others share one.
TOPICS_MAX: Final = 1_000
QUEUES_MAX: Final = 500


class WriteTimes:
    """What the entries of a log wait for until the disk has them."""

    __slots__ = ("now", "queue", "sync")

    def __init__(self, now: Callable[[], float]) -> None:
        # The monotonic clock, also for the threads that write.
        self.now = now
        self.queue = Histogram()
        self.sync = Histogram()

    def note(self, queued_at: float, began_at: float, ended_at: float) -> None:
        # As `Histogram.observe`, without two calls for each write.
        for histogram, took in (
            (self.queue, began_at - queued_at),
            (self.sync, ended_at - began_at),
        ):
            histogram.counts[bisect_left(histogram.bounds, took)] += 1
            histogram.total += took


class NodeCounters:
    __slots__ = (
        "_requests",
        "connections",
        "connections_opened",
        "elections_won",
        "in_sync_growths",
        "in_sync_shrinks",
        "loop_delay",
        "queues",
        "replication",
        "spans",
        "topics",
        "writes",
    )

    def __init__(
        self,
        now: Callable[[], float],
        *,
        topics_max: int = TOPICS_MAX,
        queues_max: int = QUEUES_MAX,
    ) -> None:
        # By API of the Kafka door.
        self._requests: dict[str, Requests] = {}
        self.topics: Bounded[str, Traffic] = Bounded(Traffic, topics_max, OTHERS)
        # By group and topic.
        self.queues: Bounded[tuple[str, str], Deliveries] = Bounded(
            Deliveries, queues_max, (OTHERS, OTHERS)
        )
        self.writes = WriteTimes(now)
        self.replication = Histogram()
        self.loop_delay = Histogram()
        # Of the Kafka door.
        self.connections = self.connections_opened = 0
        self.elections_won = 0
        self.spans = SpanCounts()
        self.in_sync_shrinks = self.in_sync_growths = 0

    def requests(self, api: str) -> Requests:
        found = self._requests.get(api)
        if found is None:
            found = self._requests[api] = Requests()
        return found

    def samples(self) -> Iterator[tuple[str, list[Sample]]]:
        """All but those of topics and queues, which may be many."""
        yield "penstock_request_seconds", request_seconds(KAFKA, self._requests)
        yield "penstock_request_errors_total", request_errors(KAFKA, self._requests)
        for name, value in (
            ("penstock_write_queue_seconds", self.writes.queue.sample()),
            ("penstock_sync_seconds", self.writes.sync.sample()),
            ("penstock_replication_seconds", self.replication.sample()),
            ("penstock_loop_delay_seconds", self.loop_delay.sample()),
        ):
            yield name, [((), value)]
        for name, count in (
            ("penstock_elections_won_total", self.elections_won),
            ("penstock_in_sync_shrinks_total", self.in_sync_shrinks),
            ("penstock_in_sync_growths_total", self.in_sync_growths),
        ):
            yield name, [((), count)]
        yield "penstock_spans_exported_total", [((), self.spans.exported)]
        dropped: list[Sample] = [
            ((reason,), count) for reason, count in self.spans.dropped().items()
        ]
        yield "penstock_spans_dropped_total", dropped
        yield "penstock_connections", [((KAFKA,), self.connections)]
        yield "penstock_connections_opened_total", [((KAFKA,), self.connections_opened)]


class LoopDelay:
    """Sees by the ticks of a timer how late the event loop is."""

    __slots__ = ("_counters", "_due_at", "_period_s")

    def __init__(self, counters: NodeCounters, period_s: float) -> None:
        self._counters = counters
        self._period_s = period_s
        self._due_at = 0.0

    def tick(self) -> None:
        """The timer ran, and is set again for one period from now."""
        now = self._counters.writes.now()
        if self._due_at:
            self._counters.loop_delay.observe(max(0.0, now - self._due_at))
        self._due_at = now + self._period_s


def request_seconds(door: str, requests: dict[str, Requests]) -> list[Sample]:
    """Of those APIs that were asked."""
    return [
        ((door, api), each.seconds.sample())
        for api, each in requests.items()
        if any(each.seconds.counts)
    ]


def request_errors(door: str, requests: dict[str, Requests]) -> list[Sample]:
    return [
        ((door, api, code), count)
        for api, each in requests.items()
        for code, count in each.errors.items()
    ]
