"""Bytes as they arrive on a connection, cut in place into frames with a four-byte length.

Most of what arrives is whole frames, which are served at once. So a buffer has no memory at first:
it receives into memory that all connections share, and only what is left at the end of the turn
moves to memory of its own. A thousand connections that ask something now and then need none.

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


class SharedMemory:
    """Where connections of one event loop receive that have no memory of their own.

    It is used from a `receive` to the `settle` after it, and nobody else receives in between.
    """

    __slots__ = ("data", "view")

    def __init__(self) -> None:
        self.data = bytearray(BASE_CAPACITY)
        self.view = memoryview(self.data)


_NO_DATA: Final = bytearray()
_NO_VIEW: Final = memoryview(_NO_DATA)


class ReceiveBuffer:
    """Filled by `receive`, emptied by `next_frame`; `make_room` says when it must grow."""

    __slots__ = (
        "_data",
        "_end",
        "_frame_bytes_max",
        "_shared",
        "_start",
        "_view",
        "capacity",
        "is_borrowed",
    )

    def __init__(self, frame_bytes_max: int, shared: SharedMemory) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._shared = shared
        self._data = _NO_DATA
        self._view = _NO_VIEW
        # What was received and not yet taken is between the two.
        self._start = 0
        self._end = 0
        self.capacity = 0
        # Whether it uses the shared memory, which ends with the turn.
        self.is_borrowed = False

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
        """Reads once into what is free, which must not be nothing; returns how much came.

        Call `settle` once the frames are served.
        """
        if not self.capacity:
            return self._borrow(sock)
        assert self._end < self.capacity
        count = sock.recv_into(self._view[self._end :])
        self._end += count
        return count

    def _borrow(self, sock: socket.socket) -> int:
        shared = self._shared
        count = sock.recv_into(shared.view)
        if count:
            self._data = shared.data
            self._view = shared.view
            self._end = count
            self.capacity = BASE_CAPACITY
            self.is_borrowed = True
        return count

    def settle(self) -> None:
        """Leaves the shared memory to others; what is not served yet moves to memory of our own."""
        if not self.is_borrowed:
            return
        if self._start < self._end:
            self._replace(BASE_CAPACITY)
            return
        self._data, self._view = _NO_DATA, _NO_VIEW
        self._start = self._end = self.capacity = 0
        self.is_borrowed = False

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
        filled = self.filled
        if capacity:
            data = bytearray(capacity)
            view = memoryview(data)
            view[:filled] = self._view[self._start : self._end]
        else:
            data, view = _NO_DATA, _NO_VIEW
        self._start, self._end = 0, filled
        self._data = data
        self._view = view
        self.capacity = capacity
        self.is_borrowed = False
