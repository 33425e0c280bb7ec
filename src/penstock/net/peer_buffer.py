"""Bytes as they arrive from another node, cut in place into frames with a four-byte length.

It differs from a client's receive buffer in whom it trusts: room for a whole frame is made as soon
as its length is known, because it is a node of ours that announced it.

Small frames share one buffer, which is used again at once. A large frame arrives in memory of its
own, so that what it brings can be kept where it is; that memory is used again when nobody looks
at it any more.
"""

from struct import Struct
from typing import Final

from penstock.net.reusable_buffers import ReusableBuffers

LENGTH: Final = Struct(">I")
CAPACITY: Final = 256 * 1024
# Frames from this size on get memory of their own; smaller ones fit into the shared buffer.
LARGE_FRAME_BYTES_MIN: Final = 64 * 1024
# Memory of large frames that is kept for the next ones, in use or not.
LARGE_BYTES_KEPT_MAX: Final = 16 * 1024 * 1024
# How much is read to learn the length of a frame that follows a large one: it is likely to be
# large as well, and what is read before its length is known has to be moved.
_HEAD_BYTES: Final = 4 * 1024


class PeerFraming(Exception):
    """A frame was announced that is longer than any may be."""


class PeerBuffer:
    """`room` is filled from outside; `next_frame` empties it."""

    __slots__ = (
        "_data",
        "_end",
        "_large",
        "_large_end",
        "_memory",
        "_room_bytes_max",
        "_start",
        "_view",
        "frame_bytes_max",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = bytearray(CAPACITY)
        self._view = memoryview(self._data)
        # What arrived and was not taken yet is between the two.
        self._start = 0
        self._end = 0
        self._room_bytes_max = CAPACITY
        self._memory = ReusableBuffers(LARGE_BYTES_KEPT_MAX)
        # A large frame of which a part is here; then nothing else is.
        self._large: memoryview | None = None
        self._large_end = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._view[self._end : self._end + self._room_bytes_max]

    def filled(self, count: int) -> None:
        if self._large is not None:
            self._large_end += count
        else:
            self._end += count

    def take(self, count: int) -> bytes | None:
        """The next bytes, outside any frame, once they are here."""
        if self._end - self._start < count:
            return None
        self._start += count
        return bytes(self._view[self._start - count : self._start])

    def next_frame(self) -> memoryview | None:
        """The next whole frame, or None after making room for the rest of it.

        One that is read-only stays as it is for as long as anybody looks at it; the bytes of
        others are valid until the next time.
        """
        if self._large is not None:
            return self._finish_large(self._large)
        left = self._end - self._start
        if left < LENGTH.size:
            self._make_room(LENGTH.size)
            return None
        length: int = LENGTH.unpack_from(self._data, self._start)[0]
        if length > self.frame_bytes_max:
            raise PeerFraming(f"a frame of {length} bytes was announced")
        size = LENGTH.size + length
        if left < size:
            if length >= LARGE_FRAME_BYTES_MIN:
                self._begin_large(length)
            else:
                self._make_room(size)
            return None
        body = self._start + LENGTH.size
        self._start += size
        self._room_bytes_max = CAPACITY
        return self._view[body : self._start]

    def _begin_large(self, length: int) -> None:
        here = self._view[self._start + LENGTH.size : self._end]
        self._large = memoryview(self._memory.take(length))[:length]
        self._large[: len(here)] = here
        self._large_end = len(here)
        self._start = self._end = 0

    def _finish_large(self, frame: memoryview) -> memoryview | None:
        if self._large_end < len(frame):
            return None
        self._large = None
        self._room_bytes_max = _HEAD_BYTES
        return frame.toreadonly()

    def _make_room(self, size: int) -> None:
        """Sees to it that `size` bytes fit from the start of what is here, and one more."""
        left = self._end - self._start
        if not left:
            self._start = self._end = 0
        elif self._start + size > CAPACITY or self._end == CAPACITY:
            self._view[:left] = self._view[self._start : self._end]
            self._start, self._end = 0, left
