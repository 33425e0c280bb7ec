"""Which coordinator a group belongs to: a partition of __consumer_offsets, chosen by its id."""

from functools import lru_cache

from penstock.model.ids import GroupId

_INT32_SIGN = 0x8000_0000
_INT32_MASK = 0xFFFF_FFFF


# Every heartbeat and commit asks for one.
HASHES_KEPT_MAX = 10_000


@lru_cache(maxsize=HASHES_KEPT_MAX)
def java_hash(text: str) -> int:
    """The 32-bit hash of Java's strings, over UTF-16 units, as Kafka chooses partitions by it."""
    units = text.encode() if text.isascii() else _utf16_units(text)
    value = 0
    for unit in units:
        value = (value * 31 + unit) & _INT32_MASK
    return value - (1 << 32) if value & _INT32_SIGN else value


def partition_of(group_id: GroupId, partitions: int) -> int:
    value = java_hash(group_id)
    # The smallest integer has no positive counterpart in 32 bits; Kafka takes 0 for it.
    return 0 if value == -_INT32_SIGN else abs(value) % partitions


def _utf16_units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [(data[at] << 8) | data[at + 1] for at in range(0, len(data), 2)]
