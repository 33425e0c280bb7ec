"""What the doors of this process count, and their broker's metrics beside it, as text."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.doors.calls import ClientValues, NodeMetrics
from penstock.frontdoor.http.pushed_values import pushed_values
from penstock.observe.exposition import pieces
from penstock.observe.families import Sample
from penstock.observe.instruments import Requests
from penstock.observe.node_counters import request_errors, request_seconds

HTTP: Final = "http"
# Values of clients that are shown; they may push thousands.
CLIENT_SERIES_MAX: Final = 5_000


class Metrics:
    """Of all doors in this process; each says which it is."""

    def __init__(self) -> None:
        self._requests: dict[str, dict[str, Requests]] = {}
        # How many connections each door has.
        self.connections: dict[str, Callable[[], int]] = {}

    def answered(self, door: str, api: str, seconds: float, error: str | None = None) -> None:
        """`api` must be one of few: a route, and never the path that a client asked for."""
        apis = self._requests.setdefault(door, {})
        requests = apis.get(api)
        if requests is None:
            requests = apis[api] = Requests()
        requests.seconds.observe(seconds)
        if error is not None:
            requests.failed(error)

    async def exposition(self, broker: NodeMetrics, streams: int, kind: str) -> bytes:
        samples = self._merged(broker, streams)
        text: list[bytes] = []
        for piece in pieces(samples, kind):
            text.append(piece)
            # Other requests have their turn between two families.
            await asyncio.sleep(0)
        return b"".join(text)

    def _merged(self, broker: NodeMetrics, streams: int) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {
            family: list(found) for family, found in broker.samples.items()
        }
        for door, apis in self._requests.items():
            samples.setdefault("penstock_request_seconds", []).extend(request_seconds(door, apis))
            errors = samples.setdefault("penstock_request_errors_total", [])
            errors.extend(request_errors(door, apis))
        samples.setdefault("penstock_connections", []).extend(
            ((door,), count()) for door, count in self.connections.items()
        )
        samples["penstock_http_open_streams"] = [((), streams)]
        samples["penstock_client_metric"], left_out = client_samples(broker.clients)
        if left_out:
            samples.setdefault("penstock_series_left_out", []).append(
                (("penstock_client_metric",), left_out)
            )
        return samples


def client_samples(clients: Sequence[ClientValues]) -> tuple[list[Sample], int]:
    """What clients pushed, and how many values of theirs are not shown."""
    samples: list[Sample] = []
    left_out = 0
    for client in clients:
        for name, value in pushed_values(client.otlp).items():
            if len(samples) < CLIENT_SERIES_MAX:
                samples.append(((client.client_id, client.instance_id, name), value))
            else:
                left_out += 1
    return samples, left_out
