"""One connection that carries frames: reads, cuts, sends, and holds back when it must.

It owns the socket and everything bounded about it; what a frame means is its receiver's business.
Reading stops while any reason to pause is set: replies that the peer does not read, spent memory,
or a reason of the receiver's own. Raw sockets on the loop's readiness callbacks cost a third of
what transports do.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.file_ranges import FileRange
from penstock.model.limits import Limits
from penstock.net.intake import Intake
from penstock.net.memory_budget import MemoryBudget
from penstock.net.occasional_log import OccasionalLog
from penstock.net.receive_buffer import FramingError, SharedMemory
from penstock.net.send_queue import SendQueue

# Frames served before others get their turn.
FRAMES_PER_TURN_MAX: Final = 128
# How long a drained connection waits for its peer to end its side.
LINGER_SECONDS: Final = 1.0
_DISCARD_BYTES: Final = 64 * 1024

# Why a connection does not read, as bits. Plain integers: they are tested after every frame.
PAUSE_REPLIES: Final = 1
PAUSE_MEMORY: Final = 2
PAUSE_CALLS: Final = 4
PAUSE_PRESSURE: Final = 8
PAUSE_DRAIN: Final = 16
PAUSE_ORDER: Final = 32
_CLOSED: Final = 64

logger = logging.getLogger(__name__)


class PeerFault(Exception):
    """The peer sent what can't be served: its connection is closed with one line in the log."""


class Receiver(Protocol):
    """Who gets the frames."""

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for their answer; such a connection is not idle."""
        ...

    def on_frame(self, frame: memoryview, now: float) -> bool:
        """Serves one frame, whose bytes are valid until this returns; may raise PeerFault.

        False: not yet. It comes again after `go_on`.
        """
        ...

    def on_closed(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all connections of a door share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    limits: Limits
    budget: MemoryBudget
    memory: SharedMemory
    log: OccasionalLog


class FrameConnection:
    """The socket, its buffers and its brakes."""

    __slots__ = (
        "_active_at",
        "_buffer",
        "_fd",
        "_frame_since",
        "_intake",
        "_is_blocked",
        "_is_draining",
        "_is_held",
        "_loop",
        "_pauses",
        "_receiver",
        "_reply_bytes_max",
        "_send",
        "_shared",
        "_sock",
        "_turn_is_due",
        "hold",
        "is_closed",
        "peer",
    )

    def __init__(
        self, sock: socket.socket, peer: Endpoint, receiver: Receiver, shared: Surroundings
    ) -> None:
        self.peer = peer
        self.is_closed = False
        self._sock = sock
        # The loop is given the number: with a socket, asyncio's lookups cost ten times as much.
        self._fd = sock.fileno()
        self._receiver = receiver
        self._shared = shared
        self._loop = shared.loop
        self._reply_bytes_max = shared.limits.reply_bytes_per_connection_max
        self._intake = Intake(
            frame_bytes_max=shared.limits.frame_bytes_max,
            memory=shared.memory,
            budget=shared.budget,
            on_room=self._on_room,
        )
        self._buffer = self._intake.buffer
        # Counts the bytes of a frame that waits for its answer.
        self.hold = self._intake.hold_call
        self._send = SendQueue(sock)
        self._pauses = 0
        self._turn_is_due = False
        # The socket takes no more for now, and the loop tells us when it does.
        self._is_blocked = False
        self._is_draining = False
        # The next frame is here, and must wait until its receiver takes it.
        self._is_held = False
        self._active_at = shared.clock.monotonic()
        # When the first byte of a frame came whose last one has not.
        self._frame_since: float | None = None
        shared.loop.add_reader(self._fd, self._on_readable)

    # Receiving

    def _on_readable(self) -> None:
        if self._turn_is_due:
            return
        if self._is_held:
            if self._buffer.is_full:
                self.pause(PAUSE_ORDER)
                return
            # Only to learn of the peer's end, as far as there is room.
        elif not self._intake.has_room():
            self.pause(PAUSE_MEMORY)
            return
        try:
            count = self._buffer.receive(self._sock)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # Reset by the peer: it will not read a reply either.
            self.close()
            return
        if count:
            self._turn()
            self._buffer.settle()
        else:
            self.close()

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._pauses or self._is_held:
            return
        try:
            self._serve_frames()
        except (FramingError, PeerFault) as fault:
            self._flush()
            self.close(str(fault))
        except Exception:
            self.fail()

    def _serve_frames(self) -> None:
        buffer = self._buffer
        was_full = buffer.is_full
        on_frame = self._receiver.on_frame
        now = self._active_at = self._shared.clock.monotonic()
        served = 0
        while (frame := buffer.next_frame()) is not None:
            if not on_frame(frame, now):
                buffer.put_back(frame)
                self._is_held = True
                break
            served += 1
            if (
                self._pauses
                or served == FRAMES_PER_TURN_MAX
                or len(self._send) > self._reply_bytes_max
            ):
                break
        self._flush()
        if self.is_closed:
            return
        if buffer.is_empty:
            self._frame_since = None
        elif served or self._frame_since is None:
            self._frame_since = now
        if frame is not None:
            self._take_turn_later()
        else:
            self._intake.adapt(was_full)

    def _take_turn_later(self) -> None:
        """Frames that are here already make the socket no more readable."""
        if self._pauses or self._is_held or self._turn_is_due:
            return
        if self._buffer.has_frame():
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def go_on(self) -> None:
        """The receiver takes frames again."""
        if self._is_held:
            self._is_held = False
            self.resume(PAUSE_ORDER)
            self._take_turn_later()

    # Memory

    def _on_room(self) -> None:
        """The budget must not be called from here, so the rest happens soon."""
        self._loop.call_soon(self._try_to_read)

    def _try_to_read(self) -> None:
        if self._pauses & PAUSE_MEMORY and not self.is_closed and self._intake.use_room():
            self.resume(PAUSE_MEMORY)

    def let_go(self, size: int) -> None:
        """Ends the counting of bytes that were counted with `hold`."""
        if not self.is_closed:
            self._intake.release_calls(size)
            if self._pauses & PAUSE_MEMORY:
                # It may have waited for just these bytes.
                self._try_to_read()

    # Pausing

    def pause(self, reason: int) -> None:
        if not self._pauses:
            self._loop.remove_reader(self._fd)
        self._pauses |= reason

    def resume(self, reason: int) -> None:
        if not self._pauses & reason:
            return
        self._pauses &= ~reason
        if self._pauses:
            return
        self._loop.add_reader(self._fd, self._on_readable)
        if reason != PAUSE_MEMORY and self._frame_since is not None:
            self._frame_since = self._shared.clock.monotonic()
        self._take_turn_later()

    # Sending

    def push(self, part: bytes) -> None:
        """Queues a reply; `flush`, or the end of the turn, sends it."""
        self._send.push(part)

    def extend(self, parts: list[bytes | FileRange]) -> None:
        self._send.extend(parts)

    def send(self, part: bytes) -> None:
        """`push` and `flush` at once."""
        try:
            if self._is_blocked:
                self._send.push(part)
                self._flush()
            elif not self.is_closed:
                self._send_some(part)
        except Exception:
            self.fail()

    def flush(self) -> None:
        try:
            self._flush()
        except Exception:
            self.fail()

    def _flush(self) -> None:
        if self.is_closed:
            return
        if self._is_blocked:
            self._account_replies()
        elif self._send:
            self._send_some()
        elif self._is_draining:
            self._end_if_drained()

    def _on_writable(self) -> None:
        try:
            self._active_at = self._shared.clock.monotonic()
            self._send_some()
        except Exception:
            self.fail()

    def _send_some(self, part: bytes | None = None) -> None:
        """Of what waits, and this."""
        try:
            is_done = self._send.flush() if part is None else self._send.send(part)
        except (ConnectionError, TimeoutError):
            self.close()
            return
        except OSError as error:
            self.close(f"its reply can't be sent: {error}")
            return
        if is_done == self._is_blocked:
            self._set_blocked(not is_done)
        if self._is_blocked or self._pauses or self._intake.counts_replies:
            self._account_replies()
        if self._is_draining:
            self._end_if_drained()

    def _set_blocked(self, is_blocked: bool) -> None:
        self._is_blocked = is_blocked
        if is_blocked:
            self._loop.add_writer(self._fd, self._on_writable)
        else:
            self._loop.remove_writer(self._fd)

    def _account_replies(self) -> None:
        """Counts what the peer leaves unread, and stops serving a peer that leaves too much."""
        self._intake.count_replies(self._send.memory_bytes)
        self._try_to_read()
        if self._intake.is_overdrawn_by_replies:
            self.close("memory is low and it does not read its replies")
        elif len(self._send) > self._reply_bytes_max:
            self.pause(PAUSE_REPLIES)
        elif len(self._send) <= self._reply_bytes_max // 2:
            self.resume(PAUSE_REPLIES)

    # Ending

    def drain(self) -> None:
        """Reads no more frames; closes when the calls are answered and the replies are sent."""
        self._is_draining = True
        self.pause(PAUSE_DRAIN)
        self._flush()

    def _end_if_drained(self) -> None:
        if self._send or self._receiver.is_busy or self.is_closed:
            return
        self._is_draining = False
        try:
            # A close with bytes unread would reset the connection and cost the peer the replies
            # it has not read: so we end our half and discard until the peer ends its own.
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._loop.add_reader(self._fd, self._discard)
        self._loop.call_later(LINGER_SECONDS, self.close)

    def _discard(self) -> None:
        try:
            is_open = bool(self._sock.recv(_DISCARD_BYTES))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_open = False
        if not is_open:
            self.close()

    def fail(self) -> None:
        """Called while handling an exception that is a bug of ours: the broker goes on."""
        logger.exception("a connection failed and is closed: %s", self.peer)
        self.close()

    def close(self, why: str | None = None) -> None:
        """Ends at once; `why` is logged when it is not just the peer's wish."""
        if self.is_closed:
            return
        if why is not None:
            self._shared.log.warning(logger, "close", "closed %s: %s", self.peer, why)
        self.is_closed = True
        self._pauses |= _CLOSED
        self._loop.remove_reader(self._fd)
        if self._is_blocked:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        self._send.close()
        self._intake.close()
        self._receiver.on_closed()

    # Reaping

    def check(self, now: float) -> None:
        """Called now and then: closes what is half-open or idle, and trims what is quiet."""
        if self._pauses & PAUSE_DRAIN:
            return
        if self._is_excused():
            self._frame_since = now
        overdue = self._overdue(now)
        if overdue is not None:
            self.close(overdue)
        elif now - self._active_at > 1.0:
            self._intake.trim(0)

    def _is_excused(self) -> bool:
        """Whether the time during which we do not read counts against the peer.

        It does when memory is short: half frames hold that memory, and can't do so forever.
        """
        is_ours = self._is_held or self._pauses & ~PAUSE_MEMORY
        return bool(is_ours) and self._frame_since is not None

    def _overdue(self, now: float) -> str | None:
        limits = self._shared.limits
        if self._frame_since is not None:
            waited = now - self._frame_since
            if waited * 1000 > limits.frame_arrival_ms_max:
                return f"the rest of a frame did not arrive within {waited:.0f} s"
        idle = now - self._active_at
        if idle * 1000 > limits.connection_idle_ms_max and not self._receiver.is_busy:
            return f"idle for {idle:.0f} s"
        return None
