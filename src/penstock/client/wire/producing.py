"""Writes whole record batches: in order, each once, and with a bound on what waits."""

from types import TracebackType
from typing import Self

from penstock.client.errors import ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.links import Links
from penstock.client.wire.outbox import Outbox
from penstock.client.wire.partition_queue import Outgoing
from penstock.client.wire.sender import Sender, SendingPolicy
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.stamping import check_batch_shape
from penstock.model.ids import TopicPartition

ACKS_ALL = -1
BYTES_IN_FLIGHT_MAX = 32 << 20
REQUEST_BYTES_MAX = 4 << 20


class BatchProducer:
    """A thread of its own sends; `send` waits while too much is under way, `flush` for the rest."""

    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        *,
        acks: int = ACKS_ALL,
        idempotent: bool = True,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        if idempotent and acks != ACKS_ALL:
            raise ClientError("An idempotent producer needs acks=all.")
        policy = SendingPolicy(
            acks=acks, is_idempotent=idempotent, request_bytes_max=request_bytes_max
        )
        self._outbox = Outbox(bytes_in_flight_max)
        self._sender = Sender(settings, links, cluster_map, self._outbox, policy)
        self._sender.start()

    @property
    def acknowledged(self) -> int:
        """How many records are known to be written."""
        return self._outbox.acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(drop=kind is not None)

    def send(self, partition: TopicPartition, batch: bytearray, count: int) -> None:
        """Takes over one batch of `count` records with offsets from 0 on.

        Its producer fields and its CRC are written here; the caller must not touch it again.
        Raises what went wrong with an earlier batch.
        """
        check_batch_shape(batch, count)
        if self._outbox.put(Outgoing(partition, batch, count)):
            self._sender.wake()

    def flush(self) -> None:
        """Returns when everything is acknowledged; raises the first error."""
        self._outbox.wait_until_empty()

    def close(self, *, drop: bool = False) -> None:
        """Flushes, unless what is left is to be dropped, and ends the thread."""
        if self._outbox.is_closed:
            return
        try:
            if not drop:
                self.flush()
        finally:
            self._outbox.close()
            self._sender.stop()
