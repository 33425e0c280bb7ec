"""What clients tell of themselves: which metrics they are asked for, and the last that they sent.

Values are kept as they came, as OTLP `MetricsData`, in memory and within bounds: the client that
was heard of least recently goes first. They are not replicated: a client tells one broker, and
another one when that is gone.
"""

from base64 import urlsafe_b64encode
from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from penstock.cluster.changes import Change, ClientMetricsChanged
from penstock.cluster.client_metrics import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    Subscription,
    subscription,
)
from penstock.cluster.coordinator import Cluster
from penstock.model.clock import Clock

CLIENTS_MAX = 10_000
KEPT_BYTES_MAX = 32 * 1024 * 1024


class MetricsClient(NamedTuple):
    """One client, as far as its connection tells."""

    instance_id: UUID
    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int

    def attributes(self) -> dict[str, str | None]:
        """By the names that subscriptions match; the id as Kafka writes it."""
        instance_id = urlsafe_b64encode(self.instance_id.bytes).decode().rstrip("=")
        return {
            "client_instance_id": instance_id,
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.host,
            "client_source_port": str(self.port),
        }


class WantedMetrics(NamedTuple):
    """What all subscriptions together want of a client."""

    # The beginnings of names; empty: nothing.
    metrics: tuple[str, ...]
    interval_ms: int


class PushedMetrics(NamedTuple):
    """The last values of one client."""

    client: MetricsClient
    at_ms: int
    # Whether the client said that these are its last ones.
    is_final: bool
    # MetricsData of OpenTelemetry's protocol, in protobuf.
    otlp: bytes


class ClientMetrics:
    def __init__(
        self,
        *,
        cluster: Cluster,
        clock: Clock,
        clients_max: int = CLIENTS_MAX,
        bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._clients_max = clients_max
        self._bytes_max = bytes_max
        # Moves whenever clients may be asked for something else.
        self.version = 0
        self._parsed: list[Subscription] | None = None
        self._kept: OrderedDict[UUID, PushedMetrics] = OrderedDict()
        self._kept_bytes = 0
        cluster.on_change(self._heard)

    # What clients are asked for

    @property
    def push_bytes_max(self) -> int:
        """The most bytes of one push, packed or unpacked."""
        return self._cluster.int_setting("telemetry.max.bytes")

    def subscriptions(self) -> list[str]:
        """Their names."""
        return list(self._cluster.client_metrics)

    def wanted_of(self, client: MetricsClient) -> WantedMetrics:
        """With the shortest interval of the subscriptions that match, and never a longer one than
        the default."""
        if self._parsed is None:
            self._parsed = [subscription(each) for each in self._cluster.client_metrics.values()]
        attributes = client.attributes()
        found = [each for each in self._parsed if each.is_for(attributes)]
        metrics = frozenset[str]().union(*(each.metrics for each in found))
        if ALL_METRICS in metrics:
            metrics = frozenset({ALL_METRICS})
        interval_ms = min([INTERVAL_MS_DEFAULT, *(each.interval_ms for each in found)])
        return WantedMetrics(tuple(sorted(metrics)), interval_ms)

    def _heard(self, change: Change) -> None:
        if isinstance(change, ClientMetricsChanged):
            self.version += 1
            self._parsed = None

    # What they sent

    def keep(self, client: MetricsClient, otlp: bytes, *, is_final: bool = False) -> None:
        """Replaces what is kept of this client."""
        self._forget(client.instance_id)
        self._kept[client.instance_id] = PushedMetrics(client, self._clock.now_ms(), is_final, otlp)
        self._kept_bytes += len(otlp)
        while len(self._kept) > self._clients_max or self._kept_bytes > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def last_pushed(self) -> list[PushedMetrics]:
        """The last values of each client, the newest at the end."""
        return list(self._kept.values())

    def _forget(self, instance_id: UUID) -> None:
        gone = self._kept.pop(instance_id, None)
        if gone is not None:
            self._kept_bytes -= len(gone.otlp)
