"""Proves that frames come out of the buffer as they went in, however they are cut on the way."""

from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.peer_buffer import (
    CAPACITY,
    LARGE_BYTES_KEPT_MAX,
    LARGE_FRAME_BYTES_MIN,
    LENGTH,
    PeerBuffer,
    PeerFraming,
)

FRAME_BYTES_MAX = 16 * 1024 * 1024


def feed(buffer: PeerBuffer, data: bytes, step: int) -> list[bytes]:
    """Gives the data in pieces of at most `step` bytes; returns the frames that came out."""
    frames = []
    position = 0
    while position < len(data):
        room = buffer.room()
        assert len(room) > 0
        piece = data[position : position + min(step, len(room))]
        room[: len(piece)] = piece
        buffer.filled(len(piece))
        position += len(piece)
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 1000, CAPACITY - 4, CAPACITY, 700_000]), max_size=6),
    step=st.sampled_from([3_000, 65_536, 300_000, 2_000_000]),
)
def test_frames_survive_any_cut(sizes: list[int], step: int) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert feed(PeerBuffer(FRAME_BYTES_MAX), framed(frames), step) == frames


def receive_large(buffer: PeerBuffer, content: bytes) -> memoryview:
    """One frame as the buffer gives it, in pieces that do not end where frames do."""
    data = framed([content])
    position = 0
    while True:
        room = buffer.room()
        piece = data[position : position + min(50_000, len(room))]
        room[: len(piece)] = piece
        buffer.filled(len(piece))
        position += len(piece)
        frame = buffer.next_frame()
        if frame is not None:
            assert buffer.next_frame() is None
            return frame


def test_a_large_frame_stays_as_it_is_while_anybody_looks_at_it() -> None:
    buffer = PeerBuffer(FRAME_BYTES_MAX)
    contents = [bytes([number]) * LARGE_FRAME_BYTES_MIN * 3 for number in range(4)]
    frames = [receive_large(buffer, content) for content in contents]
    assert all(frame.readonly for frame in frames)
    assert frames == contents


def test_the_memory_of_a_large_frame_is_used_again_once_nobody_looks_at_it() -> None:
    buffer = PeerBuffer(FRAME_BYTES_MAX)
    first = receive_large(buffer, bytes(LARGE_FRAME_BYTES_MIN * 3))
    memory, part = first.obj, first[10:20]
    del first
    second = receive_large(buffer, b"x" * LARGE_FRAME_BYTES_MIN * 3)
    assert second.obj is not memory
    assert part == bytes(10)
    del part
    assert receive_large(buffer, b"y" * LARGE_FRAME_BYTES_MIN * 3).obj is memory


def test_frames_that_share_memory_may_not_be_kept() -> None:
    buffer = PeerBuffer(FRAME_BYTES_MAX)
    buffer.room()[:9] = framed([b"small"])
    buffer.filled(9)
    frame = buffer.next_frame()
    assert frame is not None
    assert bytes(frame) == b"small"
    assert not frame.readonly


def test_the_room_of_a_huge_frame_is_given_back() -> None:
    buffer = PeerBuffer(2 * LARGE_BYTES_KEPT_MAX)
    large = bytes(LARGE_BYTES_KEPT_MAX + 1)
    memory = ref(receive_large(buffer, large))
    assert memory() is None
    assert feed(buffer, framed([b"small", large, b"small"]), 1_000_000) == [
        b"small",
        large,
        b"small",
    ]


def test_an_impossible_length_is_noticed_before_anything_is_allocated() -> None:
    buffer = PeerBuffer(1000)
    with pytest.raises(PeerFraming, match="1001"):
        feed(buffer, LENGTH.pack(1001), 4)


def test_bytes_before_the_first_frame_can_be_taken() -> None:
    buffer = PeerBuffer(1000)
    room = buffer.room()
    room[:3] = b"MAG"
    buffer.filled(3)
    assert buffer.take(5) is None
    buffer.room()[:2] = b"IC"
    buffer.filled(2)
    assert buffer.take(5) == b"MAGIC"
    assert feed(buffer, framed([b"frame"]), 100) == [b"frame"]
