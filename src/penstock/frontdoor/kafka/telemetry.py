"""The talk between clients and the broker about their metrics (KIP-714).

A client asks what it should push, and how often. It gets an id for itself and one for what it is
asked for, and pushes by them until the latter does not hold any more because subscriptions changed.
The broker remembers each client as long as its connection lasts, to hold it to the interval. It
remembers this many of them; one that was forgotten is a new one.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import NamedTuple
from uuid import UUID, uuid4

from penstock.broker.client_metrics import ClientMetrics, MetricsClient, WantedMetrics
from penstock.frontdoor.kafka.errors import RefusedWith, error_code
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.records.checksum import crc32c
from penstock.records.compression import Codec, decompress
from penstock.records.errors import CorruptBatch

NO_INSTANCE = UUID(int=0)
# Kafka gives these two to nobody.
RESERVED = frozenset({NO_INSTANCE, UUID(int=1)})
# The best one first: clients take the first that they have.
ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
INSTANCES_MAX = 16_384
# A client that is silent for this many intervals, and for this time, is forgotten.
SILENT_INTERVALS_MAX = 3
SILENT_S_MIN = 60.0
# After these a client asks again at once.
_ASKS_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class Push(NamedTuple):
    """What a client sends, as its request says it."""

    subscription_id: int
    is_terminating: bool
    codec: int
    metrics: bytes


class Instance:
    """One client, and when it was heard of."""

    __slots__ = (
        "_asked_at",
        "_pushed_at",
        "client",
        "expires_at",
        "is_terminating",
        "last_error",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(self, client: MetricsClient, wanted: WantedMetrics, version: int) -> None:
        self.client = client
        self.wanted = wanted
        # Of the subscriptions that it was made from.
        self.version = version
        self.subscription_id = _subscription_id(client.instance_id, wanted)
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.expires_at = inf
        self._asked_at = self._pushed_at = -inf

    @property
    def interval_s(self) -> float:
        return self.wanted.interval_ms / 1000

    def may_ask(self, now: float) -> bool:
        if now - max(self._asked_at, self._pushed_at) >= self.interval_s:
            self._asked_at = now
            return True
        return self.last_error in _ASKS_AGAIN

    def may_push(self, now: float) -> bool:
        """The first push may follow its question at any time: clients spread them."""
        is_first = self._asked_at > self._pushed_at
        if is_first or now - self._pushed_at >= self.interval_s:
            self._pushed_at = now
            return True
        return False


class Telemetry:
    """Of all connections of this door."""

    def __init__(
        self,
        metrics: ClientMetrics,
        *,
        instances_max: int = INSTANCES_MAX,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        self._metrics = metrics
        self._instances_max = instances_max
        self._new_uuid = new_uuid
        # The least recently heard of first.
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        # The last one that began on a connection which is still open.
        self._by_connection: dict[int, UUID] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, client: MetricsClient, connection_id: int, now: float) -> Instance:
        """What the client is to push; it gets an id if it has none yet."""
        if client.instance_id == NO_INSTANCE:
            client = client._replace(instance_id=self._new_uuid())
        instance = self._instance(client, connection_id, now)
        if not instance.may_ask(now):
            raise Refused(Reason.THROTTLED, "The client asks before its next push is due.")
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, client: MetricsClient, connection_id: int, push: Push, now: float) -> None:
        if client.instance_id in RESERVED:
            raise Refused(Reason.INVALID_REQUEST, "This is not the id of a client.")
        instance = self._instance(client, connection_id, now)
        try:
            self._check(instance, push, now)
            if push.metrics:
                values = self._unpacked(push)
                self._metrics.keep(instance.client, values, is_final=push.is_terminating)
        except Refused as refused:
            instance.last_error = error_code(refused)
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.NONE

    def _check(self, instance: Instance, push: Push, now: float) -> None:
        if instance.is_terminating:
            raise Refused(Reason.INVALID_REQUEST, "The client has already sent its last push.")
        if not instance.may_push(now) and not push.is_terminating:
            raise Refused(Reason.THROTTLED, "The client pushes before its next push is due.")
        if push.subscription_id != instance.subscription_id:
            raise RefusedWith(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in tuple(Codec):
            raise Refused(Reason.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self._metrics.push_bytes_max:
            raise RefusedWith(ErrorCode.TELEMETRY_TOO_LARGE)

    def _unpacked(self, push: Push) -> bytes:
        try:
            return decompress(Codec(push.codec), push.metrics, self._metrics.push_bytes_max)
        except CorruptBatch as fault:
            raise Refused(Reason.INVALID_RECORD, str(fault)) from None

    def closed(self, connection_id: int) -> None:
        instance_id = self._by_connection.pop(connection_id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def _instance(self, client: MetricsClient, connection_id: int, now: float) -> Instance:
        instance = self._instances.get(client.instance_id)
        if instance is None or instance.expires_at < now:
            instance = self._make(client, connection_id)
        elif instance.version != self._metrics.version:
            # It is still the client that it was when it was first heard of.
            instance = self._make(instance.client, connection_id)
        silent_s = max(SILENT_S_MIN, SILENT_INTERVALS_MAX * instance.interval_s)
        instance.expires_at = now + silent_s
        self._instances.move_to_end(instance.client.instance_id)
        return instance

    def _make(self, client: MetricsClient, connection_id: int) -> Instance:
        wanted = self._metrics.wanted_of(client)
        instance = Instance(client, wanted, self._metrics.version)
        self._instances[client.instance_id] = instance
        self._by_connection[connection_id] = client.instance_id
        if len(self._instances) > self._instances_max:
            self._instances.popitem(last=False)
        return instance


def _subscription_id(instance_id: UUID, wanted: WantedMetrics) -> int:
    """As Kafka makes it; there, several metrics have no order."""
    text = f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}"
    high, low = instance_id.int >> 64, instance_id.int & 0xFFFFFFFFFFFFFFFF
    both = high ^ low
    number = crc32c(text.encode()) ^ (both >> 32) ^ (both & 0xFFFFFFFF)
    return number - 2**32 if number >= 2**31 else number
