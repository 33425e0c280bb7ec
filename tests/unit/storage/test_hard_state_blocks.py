"""Blocks of terms and votes: one bad bit or sector loses none; what is torn is told from rot."""

import pytest

from penstock.records.checksum import crc32c
from penstock.storage.hard_state_blocks import (
    COPIES,
    MARK_1,
    PAGE_BYTES,
    SECTOR_BYTES,
    encode_block,
    read_blocks,
)

# The first has more than a page, the others are as small as most are.
CONTENTS = [bytes(range(1, 251)) * 20, b"a vote", b"another", b"the last vote"]
BLOCKS = [encode_block(number, content) for number, content in enumerate(CONTENTS)]
DATA = b"".join(BLOCKS)
LAST = len(DATA) - len(BLOCKS[-1])
HEAD_BYTES = 27


def flipped(data: bytes, *positions: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    for position in positions:
        changed[position] ^= 1 << bit
    return bytes(changed)


def zeroed(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + bytes(length) + data[start + length :]


def used_positions() -> list[int]:
    """Of heads and contents, and some of what fills the rest of a page."""
    used, start = [], 0
    for block, content in zip(BLOCKS, CONTENTS, strict=True):
        size = len(block) // COPIES
        for copy in (start, start + size):
            used += range(copy, copy + HEAD_BYTES + min(len(content), 100))
            used += range(copy + HEAD_BYTES + 100, copy + size, 61)
        start += len(block)
    return used


def test_what_was_written_is_read() -> None:
    found = read_blocks(DATA)
    assert found.contents == CONTENTS
    assert found.size == len(DATA)
    assert (found.saved, found.torn, found.lost) == ([], None, [])
    assert len(BLOCKS[1]) == COPIES * PAGE_BYTES


def test_no_flipped_bit_loses_a_block() -> None:
    for position in used_positions():
        for bit in range(8):
            found = read_blocks(flipped(DATA, position, bit=bit))
            assert found.contents == CONTENTS, position
            assert not found.lost
            assert found.torn is None
            assert len(found.saved) <= 1
    for position in range(len(DATA)):
        assert read_blocks(flipped(DATA, position, bit=position % 8)).contents == CONTENTS


@pytest.mark.parametrize("length", [SECTOR_BYTES, PAGE_BYTES])
@pytest.mark.parametrize("filler", [b"\x00", b"\xa5"])
def test_no_bad_sector_or_page_loses_a_block(length: int, filler: bytes) -> None:
    for start in range(0, len(DATA), length):
        bad = DATA[:start] + filler * length + DATA[start + length :]
        found = read_blocks(bad)
        assert found.contents == CONTENTS, start
        assert not found.lost
        assert found.torn is None
        for fault in found.saved:
            assert fault.position <= start < fault.position + fault.length


def test_the_end_of_a_file_that_is_short_was_torn() -> None:
    """Whatever is there of the last block: unless one copy is whole, nobody was promised it."""
    for end in range(LAST + 1, len(DATA)):
        found = read_blocks(DATA[:end])
        is_whole = end - LAST >= HEAD_BYTES + len(CONTENTS[-1])
        assert found.contents == (CONTENTS if is_whole else CONTENTS[:-1]), end
        assert not found.lost
        assert (found.torn is None) == is_whole
        if found.torn is not None:
            assert found.size == found.torn.position == LAST
            assert found.torn.length == end - LAST


def test_a_short_file_whose_head_is_bad_too_was_torn() -> None:
    assert read_blocks(flipped(DATA[: LAST + PAGE_BYTES], LAST + 9)).torn is not None


def test_a_block_with_a_sector_of_zeros_in_each_copy_was_torn() -> None:
    for first in range(LAST, LAST + PAGE_BYTES, SECTOR_BYTES):
        for second in range(LAST + PAGE_BYTES, len(DATA), SECTOR_BYTES):
            bad = zeroed(zeroed(DATA, first, SECTOR_BYTES), second, SECTOR_BYTES)
            found = read_blocks(bad)
            is_whole = first > LAST or second > LAST + PAGE_BYTES
            assert found.contents == (CONTENTS if is_whole else CONTENTS[:-1])
            assert not found.lost
            assert (found.torn is None) == is_whole
            assert "zeros" in str(found.torn) or is_whole


@pytest.mark.parametrize("first", [0, 6, 8, 15, 17, 20, 25, 30])
def test_the_last_block_is_lost_if_both_copies_have_a_bad_bit(first: int) -> None:
    """Also in the length, which makes a file look short."""
    for second in range(HEAD_BYTES + len(CONTENTS[-1])):
        for bit in range(8):
            found = read_blocks(flipped(DATA, LAST + first, LAST + PAGE_BYTES + second, bit=bit))
            assert found.contents == CONTENTS[:-1]
            assert found.torn is None
            assert [lost.position for lost in found.lost] == [LAST]


def test_a_block_before_the_last_is_lost_if_no_copy_is_whole_and_the_others_are_kept() -> None:
    start = len(BLOCKS[0])
    for bad in (
        flipped(DATA, start + 20, start + PAGE_BYTES + 30),
        zeroed(DATA, start, len(BLOCKS[1])),
    ):
        found = read_blocks(bad)
        assert found.contents == [CONTENTS[0], *CONTENTS[2:]]
        assert found.torn is None
        assert [(lost.position, lost.length) for lost in found.lost] == [(start, len(BLOCKS[1]))]


@pytest.mark.parametrize("data", [b"", b"PNHS", bytes(PAGE_BYTES), bytes(2 * PAGE_BYTES)])
def test_the_first_block_is_never_torn_because_it_comes_with_the_file(data: bytes) -> None:
    found = read_blocks(data)
    assert found.torn is None
    assert found.lost


def test_a_copy_in_the_place_of_another_is_bad() -> None:
    """A write that went astray: block 3 over the first copy of block 1."""
    start = len(BLOCKS[0])
    stray = BLOCKS[3][:PAGE_BYTES]
    found = read_blocks(DATA[:start] + stray + DATA[start + PAGE_BYTES :])
    assert found.contents == CONTENTS
    assert [saved.position for saved in found.saved] == [start]
    assert not found.lost


# Version 1: every block once


def block_1(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + crc32c(content).to_bytes(4, "big") + content


OLD = MARK_1 + b"".join(map(block_1, CONTENTS))
OLD_LAST = len(OLD) - len(block_1(CONTENTS[-1]))


def test_version_1_is_read() -> None:
    assert read_blocks(OLD).contents == CONTENTS
    assert read_blocks(OLD).version == 1
    assert read_blocks(MARK_1).contents == []
    assert not read_blocks(MARK_1).lost


def test_a_flipped_bit_in_the_last_block_of_version_1_is_not_a_torn_write() -> None:
    for position in range(OLD_LAST, len(OLD)):
        for bit in range(8):
            found = read_blocks(flipped(OLD, position, bit=bit))
            assert found.torn is None
            # If the length alone is bad, the checksum of all that is left tells.
            assert bool(found.lost) == (position >= OLD_LAST + 4)
            assert found.contents == (CONTENTS[:-1] if found.lost else CONTENTS)


def test_a_flipped_bit_elsewhere_in_version_1_loses_one_block() -> None:
    for position in range(6, OLD_LAST, 7):
        found = read_blocks(flipped(OLD, position, bit=position % 8))
        assert found.torn is None
        assert len(found.lost) == 1
        assert len(found.contents) == len(CONTENTS) - 1
    assert read_blocks(flipped(OLD, 3)).lost


def test_a_torn_end_of_version_1_is_cut() -> None:
    for end in range(OLD_LAST + 1, len(OLD)):
        found = read_blocks(OLD[:end])
        assert (found.contents, found.lost) == (CONTENTS[:-1], [])
        assert found.torn is not None
    zeros = read_blocks(OLD[:OLD_LAST] + bytes(len(OLD) - OLD_LAST))
    assert (zeros.contents, zeros.lost) == (CONTENTS[:-1], [])
    assert zeros.torn is not None
