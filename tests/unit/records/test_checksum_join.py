"""Proves that a checksum of two blocks can be had from that of each."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.checksum import crc32c
from penstock.records.checksum_join import join_checksums


@given(
    first=st.binary(max_size=100),
    second=st.binary(max_size=100),
    repeats=st.sampled_from([1, 2, 327, 328, 10_000]),
)
def test_joined_checksums_are_those_of_joined_blocks(
    first: bytes, second: bytes, repeats: int
) -> None:
    block = second * repeats
    joined = join_checksums(crc32c(first), crc32c(block), len(block))
    assert joined == crc32c(first + block)


def test_lengths_around_a_whole_step() -> None:
    for length in (0, 1, 32_767, 32_768, 32_769, 65_536, 1_000_000):
        block = bytes(range(256)) * (length // 256 + 1)
        block = block[:length]
        assert join_checksums(crc32c(b"before"), crc32c(block), length) == crc32c(b"before" + block)
