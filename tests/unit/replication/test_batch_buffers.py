"""Proves that memory is used again only when nobody looks at it, and that not too much is kept."""

from collections import deque

import pytest

from penstock.net import reusable_buffers
from penstock.replication.batch_buffers import LARGE_BYTES_MIN, BatchBuffers

LARGE = bytes(range(256)) * (LARGE_BYTES_MIN // 256 + 1)


def test_small_batches_are_plain_copies() -> None:
    buffers = BatchBuffers()
    copy = buffers.copy(b"small")
    assert isinstance(copy, bytearray)
    assert bytes(copy) == b"small"
    assert list(buffers) == []


def test_a_buffer_is_used_again_once_the_last_view_of_it_is_gone() -> None:
    buffers = BatchBuffers()
    first = buffers.copy(LARGE)
    assert isinstance(first, memoryview)
    assert first == LARGE
    memory = first.obj
    part = first[10:20]
    del first
    second = buffers.copy(LARGE)
    assert isinstance(second, memoryview)
    assert second.obj is not memory
    assert part == LARGE[10:20]
    del part
    third = buffers.copy(LARGE[:-1])
    assert isinstance(third, memoryview)
    assert third.obj is memory
    assert third == LARGE[:-1]
    assert second == LARGE


def test_a_larger_batch_gets_a_buffer_of_its_own() -> None:
    buffers = BatchBuffers()
    buffers.copy(LARGE)
    large = buffers.copy(LARGE * 3)
    assert bytes(large) == LARGE * 3
    assert len(list(buffers)) == 2


def test_no_more_than_the_bound_is_kept() -> None:
    buffers = BatchBuffers(bytes_max=10 * LARGE_BYTES_MIN)
    held = [buffers.copy(LARGE) for _ in range(20)]
    assert sum(map(len, buffers)) <= 10 * LARGE_BYTES_MIN
    assert all(bytes(copy) == LARGE for copy in held)


def test_many_buffers_in_use_are_not_all_tried_for_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a follower that is some batches behind: the one used first is free first."""
    buffers = BatchBuffers()
    held = deque(buffers.copy(LARGE) for _ in range(100))
    known = {id(buffer) for buffer in buffers}
    tried = 0
    is_unused = reusable_buffers._is_unused

    def count(buffer: bytearray) -> bool:
        nonlocal tried
        tried += 1
        return is_unused(buffer)

    monkeypatch.setattr(reusable_buffers, "_is_unused", count)
    for _ in range(300):
        held.popleft()
        held.append(buffers.copy(LARGE))
    assert tried <= 300 * 20
    assert {id(buffer) for buffer in buffers} == known
