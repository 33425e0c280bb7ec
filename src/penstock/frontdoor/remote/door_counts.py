"""What the doors of one process count; the HTTP door shows it beside the broker's metrics."""

from collections.abc import Callable

from penstock.observe.families import Sample
from penstock.observe.instruments import Requests
from penstock.observe.node_counters import request_errors, request_seconds


class DoorCounts:
    """Of all doors; each says by its name which it is."""

    def __init__(self) -> None:
        self._requests: dict[str, dict[str, Requests]] = {}
        # How many connections each door has.
        self.connections: dict[str, Callable[[], int]] = {}

    def requests(self, door: str, api: str) -> Requests:
        """`api` must be one of few: a route or a method, and never what a client asked for."""
        apis = self._requests.setdefault(door, {})
        found = apis.get(api)
        if found is None:
            found = apis[api] = Requests()
        return found

    def answered(self, door: str, api: str, seconds: float, error: str | None = None) -> None:
        requests = self.requests(door, api)
        requests.seconds.observe(seconds)
        if error is not None:
            requests.failed(error)

    def add_to(self, samples: dict[str, list[Sample]]) -> None:
        seconds = samples.setdefault("penstock_request_seconds", [])
        errors = samples.setdefault("penstock_request_errors_total", [])
        for door, apis in self._requests.items():
            seconds += request_seconds(door, apis)
            errors += request_errors(door, apis)
        samples.setdefault("penstock_connections", []).extend(
            ((door,), count()) for door, count in self.connections.items()
        )
