"""Counts of the door itself, and gauges of its broker, for Prometheus."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Each with what it says, as the broker names it.
BROKER_GAUGES: Mapping[str, str] = {
    "topics": "Topics of the cluster.",
    "partition_replicas": "Replicas of partitions on this node.",
    "partition_replicas_stopped": "Replicas on this node that stopped because of damage.",
    "partitions_led": "Partitions that this node leads.",
    "partitions_under_replicated": "Partitions led here that lack replicas in sync.",
    "log_bytes": "Bytes of all logs on this node.",
    "unflushed_bytes": "Bytes taken from producers that are not on disk yet.",
    "nodes_alive": "Nodes of the cluster that this one reaches.",
}


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_http_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "Time from the head of a request to its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._records = Counter(
            "penstock_http_records",
            "Records written and read over HTTP.",
            ["direction"],
            registry=self._registry,
        )
        self._streams = Gauge(
            "penstock_http_open_streams",
            "Readers of server-sent events.",
            registry=self._registry,
        )
        self._broker = {
            name: Gauge(f"penstock_{name}", text, registry=self._registry)
            for name, text in BROKER_GAUGES.items()
        }
        self.written = self._records.labels("written")
        self.read = self._records.labels("read")
        # Looking labels up costs as much as counting.
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        key = method, route, status
        found = self._known.get(key)
        if found is None:
            counter = self._requests.labels(method, route, str(status))
            found = self._known[key] = counter, self._seconds.labels(route)
        found[0].inc()
        found[1].observe(seconds)

    def exposition(self, broker: Mapping[str, float], streams: int) -> bytes:
        self._streams.set(streams)
        for name, value in broker.items():
            if name in self._broker:
                self._broker[name].set(value)
        return generate_latest(self._registry)
