"""Which batches belong to aborted transactions, as a reader of committed records must know.

The broker names the producers and where their aborted transactions begin; an abort marker in the
log says where each ends.
"""

import struct
from collections import deque
from collections.abc import Sequence

from penstock.records.batch import BatchHeader, decode_records
from penstock.records.errors import CorruptBatch

# Version and kind: the key of every control record.
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


class AbortedTransactions:
    """Follows the batches of one answer in the order of their offsets."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        # As (first offset, producer), in the order in which they begin.
        self._coming = deque(sorted((first, producer) for producer, first in aborted))
        self._open: set[int] = set()

    def hide(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the batch is part of an aborted transaction; markers must pass here, too."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(self._coming.popleft()[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control:
            if _is_abort_marker(batch):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional


def _is_abort_marker(batch: memoryview) -> bool:
    record = next(decode_records(batch), None)
    if record is None:
        return False
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatch("a control record has no kind")
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    return bool(kind == _ABORT)
