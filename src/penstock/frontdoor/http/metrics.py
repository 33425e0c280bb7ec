"""What the doors of this process count, and their broker's metrics beside it, as text."""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.broker.doors.calls import ClientValues, NodeMetrics
from penstock.frontdoor.http.pushed_values import pushed_values
from penstock.frontdoor.remote.door_counts import DoorCounts
from penstock.observe.exposition import pieces
from penstock.observe.families import Sample

HTTP: Final = "http"
# Values of clients that are shown; they may push thousands.
CLIENT_SERIES_MAX: Final = 5_000


class Metrics:
    def __init__(self, counts: DoorCounts | None = None) -> None:
        self.counts = counts or DoorCounts()

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
        self.counts.add_to(samples)
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
