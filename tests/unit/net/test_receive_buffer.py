"""Framing: cut anywhere, bounded by what arrived, never blocked by views that somebody holds."""

import random
import socket
from collections.abc import Iterator

import pytest

from penstock.net.receive_buffer import (
    BASE_CAPACITY,
    BUSY_CAPACITY,
    FramingError,
    ReceiveBuffer,
    SharedMemory,
)

FRAME_MAX = 1024 * 1024


class ByteSource:
    """Stands in for a socket: gives what it was fed."""

    def __init__(self) -> None:
        self.data = bytearray()

    def recv_into(self, target: memoryview) -> int:
        count = min(len(target), len(self.data))
        target[:count] = self.data[:count]
        del self.data[:count]
        return count


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def drain(buffer: ReceiveBuffer) -> Iterator[bytes]:
    while (frame := buffer.next_frame()) is not None:
        yield bytes(frame)


def feed(buffer: ReceiveBuffer, data: bytes) -> list[bytes]:
    """Receives all of `data` as a connection does, growing when told to."""
    source = ByteSource()
    source.data += data
    frames: list[bytes] = []
    while source.data:
        wanted = buffer.make_room()
        if wanted > buffer.capacity:
            buffer.grow_to(wanted)
        buffer.receive(source)  # type: ignore[arg-type]
        frames += drain(buffer)
        buffer.settle()
    return frames


def test_frames_split_at_every_byte() -> None:
    bodies = [b"first", b"", b"the third one"]
    stream = b"".join(map(framed, bodies))
    for cut in range(len(stream) + 1):
        buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
        assert feed(buffer, stream[:cut]) + feed(buffer, stream[cut:]) == bodies
        assert buffer.is_empty


def test_frames_byte_by_byte() -> None:
    bodies = [b"a", b"bc" * 100, b""]
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    frames: list[bytes] = []
    for byte in b"".join(map(framed, bodies)):
        frames += feed(buffer, bytes([byte]))
    assert frames == bodies


def test_random_sizes_in_random_pieces() -> None:
    chance = random.Random(7)
    bodies = [chance.randbytes(chance.choice([0, 5, 300, 20_000, 150_000])) for _ in range(60)]
    stream = b"".join(map(framed, bodies))
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    frames: list[bytes] = []
    position = 0
    while position < len(stream):
        size = chance.choice([1, 3, 100, 16_000, 70_000])
        frames += feed(buffer, stream[position : position + size])
        position += size
    assert frames == bodies


@pytest.mark.parametrize("length", [-1, -(2**31), FRAME_MAX + 1, 2**31 - 1])
def test_impossible_lengths_are_refused(length: int) -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    with pytest.raises(FramingError):
        feed(buffer, length.to_bytes(4, "big", signed=True))
    assert buffer.has_frame(), "the fault is still there to be told"


def test_an_announced_length_alone_costs_nothing() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    feed(buffer, FRAME_MAX.to_bytes(4, "big") + b"some")
    assert buffer.capacity == BASE_CAPACITY
    assert buffer.make_room() == BASE_CAPACITY


def test_capacity_is_at_most_twice_what_arrived() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    sent = 4
    feed(buffer, FRAME_MAX.to_bytes(4, "big"))
    while sent < FRAME_MAX + 4:
        piece = bytes(min(10_000, FRAME_MAX + 4 - sent))
        frames = feed(buffer, piece)
        sent += len(piece)
        assert buffer.capacity <= max(2 * sent, BASE_CAPACITY)
    assert [len(frame) for frame in frames] == [FRAME_MAX]


def test_shrinks_back_after_a_large_frame() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    feed(buffer, framed(bytes(BUSY_CAPACITY * 2)))
    assert buffer.capacity > BUSY_CAPACITY
    buffer.shrink_to(BASE_CAPACITY)
    assert feed(buffer, framed(b"again")) == [b"again"]
    buffer.shrink_to(0)
    assert buffer.capacity == 0
    assert feed(buffer, framed(b"and again")) == [b"and again"]


def test_views_that_are_held_do_not_block_growth() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    source = ByteSource()
    source.data += framed(b"held")
    buffer.receive(source)  # type: ignore[arg-type]
    held = buffer.next_frame()
    feed(buffer, framed(bytes(BASE_CAPACITY * 3)))
    buffer.shrink_to(0)
    assert held is not None
    assert len(held) == 4


def test_whole_frames_need_no_memory_of_their_own() -> None:
    shared = SharedMemory()
    buffers = [ReceiveBuffer(FRAME_MAX, shared) for _ in range(3)]
    for number, buffer in enumerate(buffers):
        assert feed(buffer, framed(b"hello %d" % number)) == [b"hello %d" % number]
        assert (buffer.capacity, buffer.is_empty) == (0, True)


def test_what_is_not_served_yet_survives_what_others_receive() -> None:
    """Parts of frames and frames that wait: of each buffer its own, whoever receives next."""
    shared = SharedMemory()
    bodies = [b"first" * 100, b"second" * 100]
    buffers = [ReceiveBuffer(FRAME_MAX, shared) for _ in bodies]
    for buffer, body in zip(buffers, bodies, strict=True):
        assert feed(buffer, framed(body)[:-1]) == []
        assert buffer.capacity == BASE_CAPACITY
    other = ReceiveBuffer(FRAME_MAX, shared)
    assert feed(other, framed(b"x" * (BASE_CAPACITY - 4))) == [b"x" * (BASE_CAPACITY - 4)]
    for buffer, body in zip(buffers, bodies, strict=True):
        assert feed(buffer, body[-1:]) == [body]


def test_a_frame_that_was_put_back_is_kept() -> None:
    shared = SharedMemory()
    buffer, other = ReceiveBuffer(FRAME_MAX, shared), ReceiveBuffer(FRAME_MAX, shared)
    source = ByteSource()
    source.data += framed(b"later") + framed(b"the next")
    buffer.receive(source)  # type: ignore[arg-type]
    frame = buffer.next_frame()
    assert frame is not None
    buffer.put_back(frame)
    buffer.settle()
    feed(other, framed(bytes(100)))
    assert list(drain(buffer)) == [b"later", b"the next"]


class Nothing:
    """A socket that was said to be readable and is not."""

    def recv_into(self, target: memoryview) -> int:
        raise BlockingIOError


def test_a_receive_that_fails_borrows_nothing() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    with pytest.raises(BlockingIOError):
        buffer.receive(Nothing())  # type: ignore[arg-type]
    assert buffer.receive(ByteSource()) == 0  # type: ignore[arg-type]
    assert (buffer.capacity, buffer.is_borrowed, buffer.is_empty) == (0, False, True)


def test_has_frame_agrees_with_next_frame() -> None:
    buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
    assert not buffer.has_frame()
    for byte in framed(b"ab"):
        assert not buffer.has_frame()
        source = ByteSource()
        source.data.append(byte)
        buffer.receive(source)  # type: ignore[arg-type]
        buffer.settle()
    assert buffer.has_frame()
    assert list(drain(buffer)) == [b"ab"]
    assert not buffer.has_frame()


def test_receives_from_a_real_socket() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(framed(b"hello") + framed(b"world"))
        buffer = ReceiveBuffer(FRAME_MAX, SharedMemory())
        assert buffer.receive(right) == 18
        assert list(drain(buffer)) == [b"hello", b"world"]
