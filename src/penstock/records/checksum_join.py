"""The CRC-32C of two blocks together from that of each, without looking at the second one again.

A checksum is a remainder of polynomials over two values, so a block that follows another shifts
the other's remainder by its own length and adds its own: shifting is a multiplication by a power of
x. Whole steps of that are looked up, and what is left is a checksum over a few zeros.
"""

from functools import cache
from typing import Final

from penstock.records.checksum import crc32c

_POLYNOMIAL: Final = 0x82F63B78
_ONES: Final = 0xFFFFFFFF
# The highest bit stands for x to the power of 0: the order of bits is reversed.
_ONE: Final = 1 << 31
_STEP_BYTES: Final = 1 << 15
_ZEROS: Final = memoryview(bytes(_STEP_BYTES))


def join_checksums(first: int, second: int, second_length: int) -> int:
    """Of both blocks, the second of which has this many bytes."""
    steps, rest = divmod(second_length, _STEP_BYTES)
    shifted = crc32c(_ZEROS[:rest], first ^ _ONES) ^ _ONES
    if steps:
        shifted = _multiply(shifted, _power(steps))
    return shifted ^ second


@cache
def _power(steps: int) -> int:
    """What this many steps multiply by; few are ever asked for, since a block's size is bounded."""
    shifted = _ONE
    for _ in range(steps):
        shifted = crc32c(_ZEROS, shifted ^ _ONES) ^ _ONES
    return shifted


def _multiply(left: int, right: int) -> int:
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & _ONES
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return product
