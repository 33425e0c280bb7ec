"""Bytes as they arrive on a connection, cut in place into frames with a four-byte length.

The buffer grows by doubling while bytes arrive, never by the length that a frame announces. It is
never resized but replaced, so views of frames that somebody still holds can't get in the way.
"""

import socket
from struct import Struct
from typing import Final

LENGTH_SIZE: Final = 4
# Every connection may have this much without asking; it is enough for most requests.
BASE_CAPACITY: Final = 16 * 1024
# A busy connection receives up to this much at once, for fewer system calls.
BUSY_CAPACITY: Final = 256 * 1024
_ROUNDING: Final = 64 * 1024

_unpack_length = Struct(">i").unpack_from


class FramingError(ValueError):
    """The peer announced a frame of an impossible length."""


class ReceiveBuffer:
    """Filled by `receive`, emptied by `next_frame`; `room_wanted` says when it must grow."""

    __slots__ = ("_data", "_end", "_frame_bytes_max", "_start", "_view", "capacity")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._data = bytearray()
        self._view = memoryview(self._data)
        # What was received and not yet taken is between the two.
        self._start = 0
        self._end = 0
        self.capacity = 0

    @property
    def is_empty(self) -> bool:
        return self._start == self._end

    @property
    def filled(self) -> int:
        return self._end - self._start

    @property
    def is_full(self) -> bool:
        return self._end == self.capacity

    def receive(self, sock: socket.socket) -> int:
        """Reads once into what is free, which must not be nothing; returns how much came."""
        if not self.capacity:
            self._replace(BASE_CAPACITY)
        assert self._end < self.capacity
        count = sock.recv_into(self._view[self._end :])
        self._end += count
        return count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None; valid until the next `receive`."""
        start = self._start
        body = start + LENGTH_SIZE
        if body > self._end:
            return None
        length: int = _unpack_length(self._data, start)[0]
        if not 0 <= length <= self._frame_bytes_max:
            raise FramingError(f"a frame of {length} bytes was announced")
        stop = body + length
        if stop > self._end:
            return None
        self._start = stop
        return self._view[body:stop]

    def put_back(self, frame: memoryview) -> None:
        """The frame that was taken last is the next one again."""
        self._start -= LENGTH_SIZE + len(frame)

    def has_frame(self) -> bool:
        """Whether `next_frame` would have something to say, if only that the length is wrong."""
        if self.filled < LENGTH_SIZE:
            return False
        length: int = _unpack_length(self._data, self._start)[0]
        is_possible = 0 <= length <= self._frame_bytes_max
        return not is_possible or self.filled >= LENGTH_SIZE + length

    def make_room(self) -> int:
        """Moves a partial frame to the front if that helps; returns the capacity it needs.

        The answer is at most the present capacity as long as there is room to receive.
        """
        filled = self.filled
        if not filled:
            self._start = self._end = 0
            return self.capacity
        if self._start and self._start + self._frame_size() > self.capacity:
            self._view[:filled] = self._view[self._start : self._end]
            self._start, self._end = 0, filled
        if self._end < self.capacity:
            return self.capacity
        rounded = -(-self._frame_size() // _ROUNDING) * _ROUNDING
        return min(self.capacity * 2, max(rounded, BUSY_CAPACITY))

    def grow_to(self, capacity: int) -> None:
        assert capacity > self.capacity
        self._replace(capacity)

    def shrink_to(self, capacity: int) -> None:
        """Lets go of memory; only while the buffer is empty."""
        assert self.is_empty
        assert capacity <= self.capacity
        self._replace(capacity)

    def clear(self) -> None:
        self._start = self._end = 0
        self._replace(0)

    def _frame_size(self) -> int:
        if self.filled < LENGTH_SIZE:
            return LENGTH_SIZE
        length: int = _unpack_length(self._data, self._start)[0]
        return LENGTH_SIZE + length

    def _replace(self, capacity: int) -> None:
        data = bytearray(capacity)
        view = memoryview(data)
        filled = self.filled
        view[:filled] = self._view[self._start : self._end]
        self._start, self._end = 0, filled
        self._data = data
        self._view = view
        self.capacity = capacity
