"""The latest offset of each key in a part of the log, in bounded memory."""

from hashlib import blake2b

# About 150 bytes each.
KEYS_MAX = 400_000

_DIGEST_BYTES = 16


class KeyMap:
    """Long keys are kept as digests, too wide for two keys to meet by chance."""

    __slots__ = ("_keys_max", "_offsets", "end_offset")

    def __init__(self, start_offset: int, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        # Everything from the start to here has been put in.
        self.end_offset = start_offset

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_short(key)] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        return self._offsets.get(_short(key), -1) <= offset


def _short(key: bytes) -> bytes:
    # A key that is shorter than a digest can't be mistaken for one.
    if len(key) < _DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
