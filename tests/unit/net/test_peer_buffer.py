"""Proves that frames come out of the buffer as they went in, however they are cut on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.peer_buffer import (
    CAPACITY,
    CAPACITY_KEPT_MAX,
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


def test_the_room_of_a_large_frame_is_given_back() -> None:
    buffer = PeerBuffer(FRAME_BYTES_MAX)
    large = bytes(CAPACITY_KEPT_MAX)
    assert feed(buffer, framed([large, b"small", b"small"]), 1_000_000) == [
        large,
        b"small",
        b"small",
    ]
    assert feed(buffer, framed([b"x"]), 10) == [b"x"]
    assert len(buffer.room()) <= 2 * CAPACITY


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
