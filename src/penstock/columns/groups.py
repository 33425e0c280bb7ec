"""Groups batches whose records lie in one buffer, so that one call of a kernel finds them all.

A call costs microseconds, as much as a hundred records: batches of a few records must share it.
"""

from array import array

import numpy as np

from penstock.columns.incoming import Incoming
from penstock.columns.payloads import Scratch
from penstock.columns.tables import RECORD_BYTES_MIN, Batches, Bytes
from penstock.records.batch import CODEC_MASK, BatchHeader
from penstock.records.errors import CorruptBatch

# About what stays in a processor's cache until the records have been copied out of it.
_BYTES_MAX = 1 << 20
_ROWS_MAX = 32 * 1024


class Group:
    """The batches of the next call. All lie in what was fetched, or all in the scratch buffer."""

    def __init__(self) -> None:
        self.source: Bytes = np.empty(0, np.uint8)
        self.record_count = 0
        self._bytes = 0
        # All fields of `Batches` for the first batch, then all for the second, and so on.
        self._fields = array("q")
        self._scratch = Scratch()
        self._is_in_scratch = False

    def add(self, batch: Incoming, view: memoryview, fetched: Bytes) -> bool:
        """Takes the batch, unless the group must be emptied first."""
        header = batch.header
        is_to_scratch = header[5] & CODEC_MASK != 0 or batch.upgraded is not None
        if self._fields and (
            self._bytes >= _BYTES_MAX
            or self.record_count >= _ROWS_MAX
            or is_to_scratch is not self._is_in_scratch
        ):
            return False
        begin, end = batch.begin, batch.end
        if is_to_scratch:
            packed = (view if batch.upgraded is None else batch.upgraded)[begin:end]
            place = self._scratch.add(header.codec, packed)
            if place is None:
                return False
            begin, end = place
        self.source = self._scratch.data if is_to_scratch else fetched
        self._is_in_scratch = is_to_scratch
        self._enter(header, begin, end, batch.timestamp_type)
        return True

    def _enter(self, header: BatchHeader, begin: int, end: int, timestamp_type: int) -> None:
        base_offset, _, _, _, _, _, last_delta, base_time, max_time, _, _, _, count = header
        # Before anything is made for this many records.
        if count > (end - begin) // RECORD_BYTES_MIN:
            raise CorruptBatch(f"{count} records don't fit into {end - begin} bytes")
        self._fields.extend(
            (begin, end, count, base_offset, last_delta, base_time, max_time, timestamp_type)
        )
        self._bytes += end - begin
        self.record_count += count

    def batches(self) -> Batches:
        table = np.array(self._fields, np.int64).reshape(-1, len(Batches._fields))
        return Batches(*np.ascontiguousarray(table.T))

    def clear(self) -> None:
        """Nothing of what was fetched is kept."""
        self.source = self._scratch.data
        self.record_count = self._bytes = 0
        del self._fields[:]
        self._scratch.clear()

    def __bool__(self) -> bool:
        return bool(self._fields)
