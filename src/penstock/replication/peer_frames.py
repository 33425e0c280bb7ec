"""Frames between nodes: a checksum, and then items of all kinds one after the other.

The checksum covers every byte, also those that a batch's own leaves out (its offset and term).
Where a large batch has one of its own, both ends look at its bytes at most once: the frame's
checksum follows from the batch's.
"""

import struct
from struct import Struct
from typing import Final
from uuid import UUID

from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.net.peer_buffer import LARGE_FRAME_BYTES_MIN
from penstock.records.checksum import crc32c
from penstock.records.checksum_join import join_checksums
from penstock.replication.entry_codec import DecodeError as DecodeError
from penstock.replication.peer_network import Piece

# Larger payloads travel as pieces of their own instead of being copied into their neighbours.
INLINE_BYTES_MAX: Final = 4096
# From this size on, joining a known checksum costs less than looking at the bytes.
SEALED_BYTES_MIN: Final = 128 * 1024
KEY_SIZE: Final = 20
TEXT_BYTES_MAX: Final = 2**16 - 1
# How many names of groups are remembered in both forms; beyond it the memory starts again.
KEYS_REMEMBERED_MAX: Final = 200_000

_CHECKSUM: Final = Struct(">I")
_PARTITION: Final = Struct(">i")
_LENGTH: Final = Struct(">I")
_TEXT_LENGTH: Final = Struct(">H")
NOTHING_SIZE: Final = _CHECKSUM.size


class FrameWriter:
    """Collects items; `take` gives them as the pieces of one frame."""

    __slots__ = ("_checksum", "_head", "_pieces", "size")

    def __init__(self) -> None:
        self._head = bytearray()
        self._pieces: list[Piece] = []
        # Of all pieces so far.
        self._checksum = 0
        self.size = 0

    def write(self, data: bytes) -> None:
        self._head += data
        self.size += len(data)

    def write_bytes(self, payload: Piece) -> None:
        """The length, then the payload; a large one is kept as it is until it is sent."""
        self._write_length(payload)
        if len(payload) <= INLINE_BYTES_MAX:
            self._head += payload
        else:
            self._end_head()
            self._pieces.append(payload)
            self._checksum = crc32c(payload, self._checksum)

    def write_sealed(self, payload: Piece, start: int, checksum: int) -> None:
        """As `write_bytes`, for what should have this checksum from byte `start` on: if it does
        not, the receiver of the frame notices."""
        length = len(payload)
        if length < SEALED_BYTES_MIN:
            self.write_bytes(payload)
            return
        self._write_length(payload)
        self._end_head()
        self._pieces.append(payload)
        before = crc32c(memoryview(payload)[:start], self._checksum)
        self._checksum = join_checksums(before, checksum, length - start)

    def _write_length(self, payload: Piece) -> None:
        length = len(payload)
        self._head += _LENGTH.pack(length)
        self.size += _LENGTH.size + length

    def _end_head(self) -> None:
        self._pieces.append(self._head)
        self._checksum = crc32c(self._head, self._checksum)
        self._head = bytearray()

    def write_text(self, text: str) -> None:
        data = text.encode()[:TEXT_BYTES_MAX]
        self.write(_TEXT_LENGTH.pack(len(data)) + data)

    def take(self) -> list[Piece]:
        if self._head:
            self._end_head()
        pieces = [_CHECKSUM.pack(self._checksum), *self._pieces]
        self._pieces, self._checksum, self.size = [], 0, 0
        return pieces


class FrameReader:
    """Reads items where they lie; every bad byte is a DecodeError.

    A small frame is verified before anything is read. A large one may be read first, so that the
    checksums of its batches count for its own, but nobody may act on it before `verify`.
    """

    __slots__ = ("_checksum", "_data", "_end", "_position", "_summed", "is_verified")

    def __init__(self, frame: memoryview) -> None:
        """Raises DecodeError if a small frame is not what was sent."""
        if len(frame) < _CHECKSUM.size:
            raise DecodeError("a frame without a checksum")
        self._data = frame
        self._position = _CHECKSUM.size
        self._end = len(frame)
        # The checksum of what is before the second.
        self._checksum = 0
        self._summed = _CHECKSUM.size
        self.is_verified = False
        if self._end < LARGE_FRAME_BYTES_MIN:
            self.verify()

    def verify(self) -> None:
        """Raises DecodeError if the frame is not what was sent."""
        checksum = crc32c(self._data[self._summed :], self._checksum)
        if checksum != _CHECKSUM.unpack_from(self._data)[0]:
            raise DecodeError("the checksum of a frame does not match")
        self.is_verified = True

    def is_sealed(self, taken: memoryview, start: int, checksum: int) -> bool:
        """Whether what was taken last has this checksum from byte `start` on."""
        found = crc32c(taken[start:])
        if not self.is_verified and len(taken) >= SEALED_BYTES_MIN:
            begin = self._position - len(taken) + start
            before = crc32c(self._data[self._summed : begin], self._checksum)
            self._checksum = join_checksums(before, found, len(taken) - start)
            self._summed = self._position
        return found == checksum

    @property
    def has_more(self) -> bool:
        return self._position < self._end

    @property
    def left(self) -> int:
        return self._end - self._position

    def peek(self) -> int:
        """The byte that comes next, where one does."""
        return self._data[self._position]

    def byte(self) -> int:
        if self._position >= self._end:
            raise DecodeError("a frame ends too early")
        self._position += 1
        return self._data[self._position - 1]

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._data, self._position)
        except struct.error:
            raise DecodeError("a frame ends too early") from None
        self._position += layout.size
        return values

    def take(self, size: int) -> memoryview:
        start = self._position
        stop = start + size
        if stop > self._end:
            raise DecodeError("a frame ends too early")
        self._position = stop
        return self._data[start:stop]

    def count(self, size_min: int) -> int:
        """How many things follow; never more than could fit into what is left."""
        (count,) = self.unpack(_LENGTH)
        if count * size_min > self.left:
            raise DecodeError(f"{count} elements do not fit into {self.left} bytes")
        return count

    def read_bytes(self) -> memoryview:
        return self.take(self.unpack(_LENGTH)[0])

    def text(self) -> str:
        data = self.take(self.unpack(_TEXT_LENGTH)[0])
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            raise DecodeError("text that is not UTF-8") from None


class GroupNames:
    """A group's name as 20 bytes and as an id: both ways are remembered, because making and
    hashing an id costs more than the rest of a small message."""

    __slots__ = ("_ids", "_names")

    def __init__(self) -> None:
        self._ids: dict[bytes, PartitionId] = {}
        self._names: dict[PartitionId, bytes] = {}

    def name(self, key: PartitionId) -> bytes:
        found = self._names.get(key)
        if found is None:
            found = key.topic_id.bytes + _PARTITION.pack(key.partition)
            self._remember(found, key)
        return found

    def id(self, name: bytes) -> PartitionId:
        found = self._ids.get(name)
        if found is None:
            topic_id = TopicId(UUID(bytes=name[:16]))
            found = PartitionId(topic_id, PartitionIndex(_PARTITION.unpack_from(name, 16)[0]))
            self._remember(name, found)
        return found

    def _remember(self, name: bytes, key: PartitionId) -> None:
        if len(self._ids) >= KEYS_REMEMBERED_MAX:
            self._ids.clear()
            self._names.clear()
        self._ids[name] = key
        self._names[key] = name
