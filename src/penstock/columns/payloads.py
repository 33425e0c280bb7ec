"""Decompresses batches one after the other into one buffer that is used again and again.

Kernels then find the records of many small batches in one go, and no batch costs a fresh buffer.
"""

from collections.abc import Callable

import cramjam
import numpy as np

from penstock.columns.tables import Bytes
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from penstock.records.errors import CorruptBatch

SCRATCH_BYTES = 1 << 20
# What an unusually large batch took is given back.
_KEPT_BYTES_MAX = 16 << 20
# A guess at how much a batch grows: what is too small is tried again with more.
_GROWTH = 4
_OUT_OF_ROOM = "whole buffer"
_INTO: dict[Codec, Callable[[memoryview, memoryview], int]] = {
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


class Scratch:
    """Room for decompressed records; what is there is lost at `clear`."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(0, np.uint8)
        self.filled = 0

    def clear(self) -> None:
        self.filled = 0
        if len(self.data) > _KEPT_BYTES_MAX:
            self.data = np.empty(0, np.uint8)

    def add(self, codec: Codec, packed: memoryview) -> tuple[int, int] | None:
        """Where the records lie now; None if they don't fit beside what is there already."""
        if self.filled and len(packed) * _GROWTH > len(self.data) - self.filled:
            return None
        unpack = _INTO.get(codec)
        if unpack is None:
            return self._keep(decompress(codec, packed))
        while (length := self._unpack(unpack, packed)) is None:
            if self.filled:
                return None
            self._grow()
        return self._advance(length)

    def _keep(self, records: bytes) -> tuple[int, int] | None:
        if len(records) > len(self.data) - self.filled:
            if self.filled:
                return None
            self.data = np.empty(max(SCRATCH_BYTES, len(records)), np.uint8)
        self.data[self.filled : self.filled + len(records)] = np.frombuffer(records, np.uint8)
        return self._advance(len(records))

    def _unpack(
        self, unpack: Callable[[memoryview, memoryview], int], packed: memoryview
    ) -> int | None:
        try:
            return unpack(packed, self.data[self.filled :].data)
        except cramjam.DecompressionError as error:
            if _OUT_OF_ROOM in str(error):
                if len(self.data) < DECOMPRESSED_BYTES_MAX or self.filled:
                    return None
                raise CorruptBatch(
                    f"records decompress to more than {DECOMPRESSED_BYTES_MAX} bytes"
                ) from None
            raise CorruptBatch(f"records don't decompress: {error}") from None

    def _grow(self) -> None:
        size = max(SCRATCH_BYTES, len(self.data) * _GROWTH)
        self.data = np.empty(min(size, DECOMPRESSED_BYTES_MAX), np.uint8)

    def _advance(self, length: int) -> tuple[int, int]:
        begin = self.filled
        self.filled += length
        return begin, self.filled
