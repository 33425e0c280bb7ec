"""Which partition a key belongs to, as Kafka's Java producer decides it (murmur2)."""

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
# Keys repeat: as many of them are remembered with their hash.
KEYS_REMEMBERED_MAX = 16_384


@lru_cache(maxsize=KEYS_REMEMBERED_MAX)
def murmur2(key: bytes) -> int:
    """The 32 bits of `org.apache.kafka.common.utils.Utils.murmur2`, without a sign."""
    length = len(key)
    mixed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if length > whole:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _POSITIVE) % partitions
