"""Blocks that neither a flipped bit nor a bad sector loses: how terms and votes lie in their file.

Each block is there twice, in one write, and each copy begins on a page of its own: what the disk
or the kernel can't read, it can't read by the page. A copy says which block it is and has one
checksum for its head and one for its content, so a bad length is not taken for a short file. What
fills the last page is not zero, so a sector of zeros is one that was never written.

A block of which no copy is whole was either torn by a crash, and then nobody was promised what it
held; or it rotted, and then what it held is lost. Only the last block can be torn, because the
next one is written after its sync, and the first one never is, because it comes with the file.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.limits import MIB
from penstock.records.checksum import crc32c

BLOCK_BYTES_MAX = 64 * MIB
# What is read, or can't be read, as one.
PAGE_BYTES = 4096
# What a disk writes whole or not at all.
SECTOR_BYTES = 512
COPIES = 2

VERSION = 2
MARK = b"PNHS\x00\x02"
# The mark, which copy it is, the number of the block, the length of its content and its checksum.
_HEAD = struct.Struct(">6sBQII")
_CHECKSUM = struct.Struct(">I")
_HEAD_BYTES = _HEAD.size + _CHECKSUM.size
_FILLER = b"\xff"

# The first version had every block once, anywhere: its length and checksum, then its content.
MARK_1 = b"PNHS\x00\x01"
_HEAD_1 = struct.Struct(">II")


class BadBytes(NamedTuple):
    """A stretch of the file that is not as it was written."""

    position: int
    length: int
    detail: str

    def __str__(self) -> str:
        return f"{self.length} bytes from byte {self.position} on: {self.detail}"


class Blocks(NamedTuple):
    """What a file holds."""

    # Of the blocks that are whole, in their order.
    contents: list[bytes]
    # Where the next block belongs.
    size: int
    # One copy was bad, and the other was not.
    saved: list[BadBytes]
    # The last block was never written to its end.
    torn: BadBytes | None
    # Blocks that were there once.
    lost: list[BadBytes]
    version: int = VERSION


class _Copy(NamedTuple):
    position: int
    which: int
    number: int
    length: int
    checksum: int

    @property
    def size(self) -> int:
        return _in_pages(_HEAD_BYTES + self.length)

    @property
    def block_start(self) -> int:
        return self.position - self.which * self.size


def encode_block(number: int, content: bytes) -> bytes:
    """All copies of the block, for one write."""
    assert len(content) <= BLOCK_BYTES_MAX
    checksum = crc32c(content)
    copies = []
    for which in range(COPIES):
        head = _HEAD.pack(MARK, which, number, len(content), checksum)
        copy = head + _CHECKSUM.pack(crc32c(head)) + content
        copies.append(copy.ljust(_in_pages(len(copy)), _FILLER))
    return b"".join(copies)


def read_blocks(data: bytes) -> Blocks:
    """Whatever the bytes are; what could not be read of the file must not be zeros."""
    if data.startswith(MARK_1):
        return _read_version_1(data)
    found = Blocks([], 0, [], None, [])
    position = number = 0
    for (start, *_), copies in sorted(_whole_blocks(data).items()):
        whole = copies[0]
        if start < position or whole.number < number:
            # Not where it belongs: a write that went astray.
            continue
        if (start, whole.number) != (position, number):
            detail = f"no copy of block {number} is good, and block {whole.number} follows"
            found.lost.append(BadBytes(position, start - position, detail))
        if len(copies) < COPIES:
            bad = start + (1 - whole.which) * whole.size
            detail = f"one copy of block {whole.number} is bad, the other one is good"
            found.saved.append(BadBytes(bad, whole.size, detail))
        content_start = whole.position + _HEAD_BYTES
        found.contents.append(data[content_start : content_start + whole.length])
        position, number = start + COPIES * whole.size, whole.number + 1
    return _judge_end(data, found, position, number)


def _whole_blocks(data: bytes) -> dict[tuple[int, ...], list[_Copy]]:
    """By where they begin and what they are: their copies that are whole, one at least."""
    blocks: dict[tuple[int, ...], list[_Copy]] = {}
    for position in range(0, len(data), PAGE_BYTES):
        copy = _read_head(data, position)
        if copy is not None and _is_whole(data, copy):
            name = (copy.block_start, copy.number, copy.length, copy.checksum)
            blocks.setdefault(name, []).append(copy)
    return blocks


def _read_head(data: bytes, position: int) -> _Copy | None:
    end = position + _HEAD.size
    if not data.startswith(MARK, position) or end + _CHECKSUM.size > len(data):
        return None
    if _CHECKSUM.unpack_from(data, end)[0] != crc32c(data[position:end]):
        return None
    _, which, number, length, checksum = _HEAD.unpack_from(data, position)
    return _Copy(position, which, number, length, checksum)


def _is_whole(data: bytes, copy: _Copy) -> bool:
    start = copy.position + _HEAD_BYTES
    content = data[start : start + copy.length]
    return len(content) == copy.length and crc32c(content) == copy.checksum


def _judge_end(data: bytes, found: Blocks, position: int, number: int) -> Blocks:
    """`position`: where block `number` would begin, which is not there or not whole."""
    if position == len(data) and number > 0:
        return found._replace(size=position)
    if position > len(data):
        # Only of what fills the last page.
        missing = BadBytes(len(data), position - len(data), f"the end of block {number - 1}")
        return found._replace(size=position, saved=[*found.saved, missing])
    length = len(data) - position
    torn = None if number == 0 else _why_torn(data, position, number)
    if torn is not None:
        detail = f"block {number} was not written completely: {torn}"
        return found._replace(size=position, torn=BadBytes(position, length, detail))
    lost = BadBytes(position, length, f"no copy of block {number} is good")
    return found._replace(size=position, lost=[*found.lost, lost])


def _why_torn(data: bytes, position: int, number: int) -> str | None:
    """None if it was written to its end and is bad all the same."""
    there = len(data) - position
    head = _read_head(data, position)
    if head is not None and head.number == number and there < COPIES * head.size:
        return f"the file has only {there} of its {COPIES * head.size} bytes"
    if there % (COPIES * PAGE_BYTES):
        return f"it has {there} bytes, which is not a multiple of {COPIES * PAGE_BYTES}"
    return _zero_sector(data, position)


def _zero_sector(data: bytes, position: int) -> str | None:
    for start, end in _sectors(position, len(data)):
        if not any(data[start:end]):
            return f"the sector at byte {start} is all zeros"
    return None


def _sectors(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        border = start - start % SECTOR_BYTES + SECTOR_BYTES
        yield start, min(border, end)
        start = border


def _in_pages(size: int) -> int:
    return size + -size % PAGE_BYTES


# Version 1


def _read_version_1(data: bytes) -> Blocks:
    found = Blocks([], 0, [], None, [], version=1)
    position = len(MARK_1)
    while position < len(data):
        content = _block_1(data, position) or _last_block_1(data, position)
        if content is None:
            following = _next_block_1(data, position)
            if following is None:
                return _judge_end_1(data, found, position)
            detail = f"the block is bad, and a valid one follows at byte {following}"
            found.lost.append(BadBytes(position, following - position, detail))
            position = following
            continue
        found.contents.append(content)
        position += _HEAD_1.size + len(content)
    return found._replace(size=position)


def _block_1(data: bytes, position: int) -> bytes | None:
    start = position + _HEAD_1.size
    if start > len(data):
        return None
    length, checksum = _HEAD_1.unpack_from(data, position)
    content = data[start : start + length]
    # An empty block was never written, and zeros would look like one.
    if 0 < len(content) == length and crc32c(content) == checksum:
        return content
    return None


def _last_block_1(data: bytes, position: int) -> bytes | None:
    """All that is left, if only its length is wrong: it must not pass for a short file."""
    start = position + _HEAD_1.size
    if start >= len(data):
        return None
    content = data[start:]
    return content if crc32c(content) == _HEAD_1.unpack_from(data, position)[1] else None


def _next_block_1(data: bytes, position: int) -> int | None:
    for later in range(position + 1, len(data) - _HEAD_1.size):
        if _block_1(data, later) is not None:
            return later
    return None


def _judge_end_1(data: bytes, found: Blocks, position: int) -> Blocks:
    there = len(data) - position
    reason = _zero_sector(data, position)
    if there < _HEAD_1.size:
        reason = "the file ends inside the head of the block"
    else:
        length, _ = _HEAD_1.unpack_from(data, position)
        if there < _HEAD_1.size + length <= BLOCK_BYTES_MAX:
            reason = f"the file has only {there} of its {_HEAD_1.size + length} bytes"
    if reason is not None:
        return found._replace(size=position, torn=BadBytes(position, there, reason))
    lost = BadBytes(position, there, "the last block is bad")
    return found._replace(size=position, lost=[*found.lost, lost])
