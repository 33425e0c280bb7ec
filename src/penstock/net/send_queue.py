"""Replies on their way to a socket: many small buffers in one call, files without a copy.

A file range is sent by `sendfile` right after the bytes before it, which are marked to be followed
by more where the platform has such a mark. Every range is released once: when it is sent, or when
the queue is closed.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from penstock.model.file_ranges import FileRange

# One flush sends at most about this much, so that one fast reader can't hold the loop.
TURN_BYTES_MAX: Final = 4 * 1024 * 1024
_BUFFERS_PER_CALL_MAX: Final = 512
_COPY_BYTES: Final = 256 * 1024
_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
_SENDFILE_IS_MISSING: Final = frozenset(
    {errno.ENOSYS, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.ENOTSUP}
)

_Parts = deque[bytes | memoryview | FileRange]


class SendQueue:
    """Parts in order; `flush` sends what the socket takes and says whether all is gone."""

    __slots__ = ("_can_sendfile", "_parts", "_range_sent", "_sock", "file_bytes", "memory_bytes")

    def __init__(
        self, sock: socket.socket, *, can_sendfile: bool = hasattr(os, "sendfile")
    ) -> None:
        self._sock = sock
        # None while nothing waits: an empty deque takes as much memory as half a connection.
        self._parts: _Parts | None = None
        self._range_sent = 0
        self._can_sendfile = can_sendfile
        self.memory_bytes = 0
        self.file_bytes = 0

    def __len__(self) -> int:
        """How many bytes wait."""
        return self.memory_bytes + self.file_bytes

    def send(self, part: bytes) -> bool:
        """`push` and `flush` at once: nearly always nothing waits, and the socket takes it all."""
        left: bytes | memoryview = part
        if self._parts is None:
            try:
                sent = self._sock.send(part)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent == len(part):
                return True
            left = memoryview(part)[sent:]
        self.push(left)
        return self.flush()

    def push(self, part: bytes | memoryview) -> None:
        queue = self._parts
        if queue is None:
            queue = self._parts = deque()
        queue.append(part)
        self.memory_bytes += len(part)

    def extend(self, parts: Iterable[bytes | FileRange]) -> None:
        queue = self._parts
        if queue is None:
            queue = self._parts = deque()
        for part in parts:
            if isinstance(part, FileRange):
                self.file_bytes += part.length
            else:
                self.memory_bytes += len(part)
            queue.append(part)

    def flush(self) -> bool:
        """True when nothing is left. OSError means that the peer is gone or a file too short."""
        budget = TURN_BYTES_MAX
        parts = self._parts
        if parts is None:
            return True
        try:
            while parts and budget > 0:
                if isinstance(parts[0], FileRange):
                    budget -= self._send_range(parts, parts[0])
                else:
                    budget -= self._send_buffers(parts)
        except (BlockingIOError, InterruptedError):
            return False
        if parts:
            return False
        self._parts = None
        return True

    def close(self) -> None:
        """Drops what waits and releases its ranges."""
        parts, self._parts = self._parts, None
        self.memory_bytes = self.file_bytes = self._range_sent = 0
        for part in parts or ():
            if isinstance(part, FileRange):
                part.release()

    def _send_buffers(self, parts: _Parts) -> int:
        buffers: list[bytes | memoryview] = []
        flags = 0
        for part in islice(parts, _BUFFERS_PER_CALL_MAX):
            if isinstance(part, FileRange):
                flags = _MORE_FOLLOWS
                break
            buffers.append(part)
        if len(buffers) == 1:
            sent = self._sock.send(buffers[0], flags)
        else:
            sent = self._sock.sendmsg(buffers, (), flags)
        self.memory_bytes -= sent
        _drop_buffers(parts, buffers, sent)
        return sent

    def _send_range(self, parts: _Parts, part: FileRange) -> int:
        left = part.length - self._range_sent
        sent = self._send_file(part, left) if left else 0
        self._range_sent += sent
        self.file_bytes -= sent
        if self._range_sent == part.length:
            parts.popleft()
            self._range_sent = 0
            part.release()
        return sent

    def _send_file(self, part: FileRange, left: int) -> int:
        position = part.position + self._range_sent
        if not self._can_sendfile:
            return self._copy_file(part, position, left)
        try:
            count = min(left, TURN_BYTES_MAX)
            sent = os.sendfile(self._sock.fileno(), part.file.fileno(), position, count)
        except OSError as error:
            if error.errno not in _SENDFILE_IS_MISSING:
                raise
            self._can_sendfile = False
            return self._copy_file(part, position, left)
        if sent == 0:
            raise OSError(errno.EIO, f"the file ends before byte {position + left}")
        return sent

    def _copy_file(self, part: FileRange, position: int, left: int) -> int:
        data = part.file.pread(min(left, _COPY_BYTES), position)
        if not data:
            raise OSError(errno.EIO, f"the file ends before byte {position + left}")
        return self._sock.send(data)


def _drop_buffers(parts: _Parts, buffers: list[bytes | memoryview], sent: int) -> None:
    for buffer in buffers:
        size = len(buffer)
        if sent < size:
            if sent:
                parts[0] = memoryview(buffer)[sent:]
            return
        sent -= size
        parts.popleft()
