"""The thread that owns a producer's sockets: it sends what callers queued and hears the answers."""

import selectors
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from penstock.client.connection import reason_of_failure
from penstock.client.wire.channel import Channel
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.deliveries import Deliveries
from penstock.client.wire.links import Links
from penstock.client.wire.outbox import Outbox
from penstock.client.wire.partition_queue import Outgoing, PartitionQueue
from penstock.client.wire.patience import Stopped
from penstock.client.wire.produce_call import produce_request
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint

# Of one broker.
REQUESTS_IN_FLIGHT_MAX = 5
# What the network may take on top of the time that the broker is given.
ANSWER_MARGIN_S = 5.0
ACKS_NONE = 0
_WAKE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingPolicy:
    acks: int
    is_idempotent: bool
    request_bytes_max: int


class Sender:
    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        outbox: Outbox,
        policy: SendingPolicy,
    ) -> None:
        self._settings = settings
        self._links = links
        self._outbox = outbox
        self._policy = policy
        self._is_stopped = threading.Event()
        self._deliveries = Deliveries(
            cluster_map, is_idempotent=policy.is_idempotent, stop=self._is_stopped
        )
        self._channels: dict[Endpoint, Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._bell, self._bell_rope = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="produce", daemon=True)

    # From callers' threads

    def start(self) -> None:
        self._bell.setblocking(False)
        self._bell_rope.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._thread.start()

    def wake(self) -> None:
        try:
            self._bell_rope.send(b"\0")
        except BlockingIOError:
            # It rings already.
            return

    def stop(self) -> None:
        """Ends the thread; what is not acknowledged by now is dropped."""
        self._is_stopped.set()
        self.wake()
        self._thread.join()
        self._bell.close()
        self._bell_rope.close()

    # The thread

    def _run(self) -> None:
        is_clean = False
        try:
            while not self._is_stopped.is_set():
                self._turn()
            is_clean = True
        except Stopped:
            pass
        except BaseException as error:
            # Callers hear of it in `send` and `flush`.
            self._outbox.fail(error)
        finally:
            self._close_channels(is_clean)
            self._selector.close()

    def _turn(self) -> None:
        for batch in self._outbox.take():
            self._deliveries.add(batch)
        now = time.monotonic()
        self._send_all(now)
        # Without answers, what is out makes room for the next at once.
        wait_s = 0.0 if self._tell_settled() else self._wait_s(now)
        for key, events in self._selector.select(wait_s):
            if key.data is None:
                self._bell.recv(_WAKE_BYTES)
            else:
                self._serve(cast("Channel", key.data), events)
        self._drop_silent()
        self._tell_settled()

    def _tell_settled(self) -> bool:
        settled = self._deliveries.take_settled()
        if settled:
            self._outbox.settle(settled)
        return bool(settled)

    def _wait_s(self, now: float) -> float | None:
        """Until something is to be done unasked; None: only what comes from outside counts."""
        times = self._deliveries.held_until(now)
        times += [one.flights[0].deadline for one in self._channels.values() if one.flights]
        return max(0.0, min(times) - now) if times else None

    # Sending

    def _send_all(self, now: float) -> None:
        for endpoint, queues in self._deliveries.ready_by_leader(now).items():
            channel = self._channel(endpoint, queues, now)
            if channel is not None:
                self._fill(channel, queues, now)
                self._write(channel)

    def _channel(
        self, endpoint: Endpoint, queues: Iterable[PartitionQueue], now: float
    ) -> Channel | None:
        channel = self._channels.get(endpoint)
        if channel is not None:
            return channel
        try:
            link = self._links.borrow(endpoint, self._settings.request_timeout_s)
        except OSError as error:
            self._deliveries.unreachable(queues, self._reason(endpoint, error), now)
            return None
        channel = self._channels[endpoint] = Channel(endpoint, link)
        self._selector.register(link.socket, selectors.EVENT_READ, channel)
        return channel

    def _fill(self, channel: Channel, queues: list[PartitionQueue], now: float) -> None:
        """Requests with one batch of each partition, as many as may be under way."""
        while len(channel.flights) < REQUESTS_IN_FLIGHT_MAX:
            batches = self._pick(queues, now)
            if not batches:
                return
            request = produce_request(self._settings, self._policy.acks, batches)
            deadline = now + self._settings.request_timeout_s + ANSWER_MARGIN_S
            channel.post(request, batches, deadline)

    def _pick(self, queues: list[PartitionQueue], now: float) -> list[Outgoing]:
        picked: list[Outgoing] = []
        size = 0
        for queue in list(queues):
            batch = queue.next_to_send(now)
            if batch is None:
                continue
            if picked and size + batch.size > self._policy.request_bytes_max:
                break
            queue.sent(batch)
            picked.append(batch)
            size += batch.size
            # Those that did not fit come first next time.
            queues.append(queues.pop(queues.index(queue)))
        return picked

    # Serving the sockets

    def _serve(self, channel: Channel, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(channel)
        if events & selectors.EVENT_READ and self._channels.get(channel.endpoint) is channel:
            self._read(channel)

    def _write(self, channel: Channel) -> None:
        try:
            channel.write()
        except OSError as error:
            self._lose(channel, error)
            return
        if self._policy.acks == ACKS_NONE:
            for flight in channel.take_written():
                for batch in flight.batches:
                    self._deliveries.acknowledged(batch)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_write else 0)
        if self._selector.get_key(channel.link.socket).events != wanted:
            self._selector.modify(channel.link.socket, wanted, channel)

    def _read(self, channel: Channel) -> None:
        try:
            for flight, answer in channel.read():
                self._deliveries.answered(flight.batches, answer, time.monotonic())
        except OSError as error:
            self._lose(channel, error)

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for channel in list(self._channels.values()):
            if channel.flights and channel.flights[0].deadline < now:
                self._lose(channel, TimeoutError())

    def _lose(self, channel: Channel, error: OSError) -> None:
        self._selector.unregister(channel.link.socket)
        del self._channels[channel.endpoint]
        reason = self._reason(channel.endpoint, error)
        self._deliveries.lost(channel.close(), reason, time.monotonic())

    def _close_channels(self, is_clean: bool) -> None:
        for channel in self._channels.values():
            self._selector.unregister(channel.link.socket)
            if is_clean and channel.is_idle:
                channel.link.socket.setblocking(True)
                self._links.give_back(channel.endpoint, channel.link)
            else:
                channel.close()
        self._channels.clear()

    def _reason(self, endpoint: Endpoint, error: OSError) -> str:
        return f"{endpoint}: {reason_of_failure(error, self._settings.request_timeout_s)}"
