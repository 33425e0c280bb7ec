"""Proves that large batches share memory one after the other, and never at the same time."""

from penstock.replication.batch_buffers import KEPT_BYTES_MAX, LARGE_BYTES_MIN, BatchBuffers

LARGE = b"x" * (LARGE_BYTES_MIN + 1)


def test_a_small_batch_is_a_plain_copy() -> None:
    buffers = BatchBuffers()
    assert type(buffers.copy(b"small")) is bytearray


def test_a_copy_is_exactly_the_batch_and_independent_of_it() -> None:
    source = bytearray(LARGE)
    copy = BatchBuffers().copy(source)
    source[0] = 0
    assert bytes(copy) == LARGE


def test_memory_is_used_again_only_after_it_was_given_back() -> None:
    buffers = BatchBuffers()
    first = buffers.copy(LARGE)
    assert isinstance(first, memoryview)
    memory = first.obj
    second = buffers.copy(LARGE)
    assert isinstance(second, memoryview)
    assert second.obj is not memory
    buffers.give_back([first])
    third = buffers.copy(LARGE[:-1])
    assert isinstance(third, memoryview)
    assert third.obj is memory
    assert bytes(third) == LARGE[:-1]


def test_a_batch_that_fits_no_kept_buffer_gets_a_new_one() -> None:
    buffers = BatchBuffers()
    buffers.give_back([buffers.copy(LARGE)])
    assert bytes(buffers.copy(LARGE * 3)) == LARGE * 3


def test_what_is_kept_is_bounded() -> None:
    buffers = BatchBuffers()
    huge = bytes(KEPT_BYTES_MAX // 3)
    copies = [buffers.copy(huge) for _ in range(6)]
    memories = [copy.obj for copy in copies if isinstance(copy, memoryview)]
    buffers.give_back([*copies])
    again = [buffers.copy(huge) for _ in range(6)]
    taken = [copy.obj for copy in again if isinstance(copy, memoryview)]
    reused = [memory for memory in memories if any(memory is other for other in taken)]
    assert 1 <= len(reused) <= 3
