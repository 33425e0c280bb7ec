"""A link on which several requests are under way at once, and which never makes anybody wait."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.client.wire.link import Expected, Link, after
from penstock.client.wire.partition_queue import Outgoing
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.messages.produce import ProduceRequest, ProduceResponse

# The last version in which topics go by name.
VERSION_BY_NAME_MAX = 12
_READ_BYTES = 64 << 10
_SIZE_BYTES = 4
_PIECES_MAX = 512


@dataclass(slots=True, kw_only=True)
class Flight:
    """A request that was handed to the socket, in part or whole."""

    expected: Expected
    batches: list[Outgoing]
    deadline: float
    # How many bytes the channel has sent when this request is out.
    ends_at: int


class Channel:
    def __init__(self, endpoint: Endpoint, link: Link) -> None:
        self.endpoint = endpoint
        self.link = link
        self.flights: deque[Flight] = deque()
        self._outgoing: list[memoryview] = []
        self._bytes_queued = 0
        self._bytes_sent = 0
        self._received = bytearray()
        link.socket.setblocking(False)

    @property
    def wants_to_write(self) -> bool:
        return bool(self._outgoing)

    @property
    def is_idle(self) -> bool:
        return not self.flights and not self._outgoing and not self._received

    def post(self, request: ProduceRequest, batches: list[Outgoing], deadline: float) -> None:
        expected, pieces = self.link.encode(request, version_max=VERSION_BY_NAME_MAX)
        views = [memoryview(piece) for piece in pieces]
        self._bytes_queued += sum(map(len, views))
        self._outgoing += views
        flight = Flight(
            expected=expected, batches=batches, deadline=deadline, ends_at=self._bytes_queued
        )
        self.flights.append(flight)

    def write(self) -> None:
        """As much as the socket takes; raises OSError."""
        while self._outgoing:
            try:
                sent = self.link.socket.sendmsg(self._outgoing[:_PIECES_MAX])
            except BlockingIOError:
                return
            self._bytes_sent += sent
            self._outgoing = after(self._outgoing, sent)

    def take_written(self) -> Iterator[Flight]:
        """Requests that are out and to which no answer comes."""
        while self.flights and self.flights[0].ends_at <= self._bytes_sent:
            yield self.flights.popleft()

    def read(self) -> Iterator[tuple[Flight, ProduceResponse]]:
        """Answers that have come; raises OSError, or ClientError for those that make no sense."""
        try:
            data = self.link.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._received += data
        while (frame := self._next_frame()) is not None:
            if not self.flights:
                raise ConnectionResetError("the broker sent something that was not asked for")
            flight = self.flights.popleft()
            yield flight, self.link.decode(frame, flight.expected, ProduceResponse)

    def close(self) -> list[Outgoing]:
        """Returns the batches whose fate is not known."""
        self.link.close()
        self._outgoing.clear()
        lost = [batch for flight in self.flights for batch in flight.batches]
        self.flights.clear()
        return lost

    def _next_frame(self) -> bytes | None:
        if len(self._received) < _SIZE_BYTES:
            return None
        end = _SIZE_BYTES + self.link.frame_size(self._received[:_SIZE_BYTES])
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_SIZE_BYTES:end])
        del self._received[:end]
        return frame
