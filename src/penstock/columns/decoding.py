"""Record batches of one partition, as a broker sends them, to Arrow."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.columns.assembly import Assembly
from penstock.columns.groups import Group
from penstock.columns.incoming import Walk
from penstock.columns.kernels import KernelChoice, ReadingKernels, reading_choice
from penstock.columns.tables import Batches, empty_rows
from penstock.records.errors import CorruptBatch

ROWS_MAX = 16_384
BYTES_MAX = 8 << 20


class Decoder:
    """Arrow batches of the records at offsets in [start, stop), from any number of answers.

    Small record batches are joined and large ones cut, so rows come out when an Arrow batch is
    full, and the rest at `finish`. `rows_max` and `bytes_max` bound an Arrow batch. Bytes that are
    no records raise CorruptBatch, after which the decoder is of no more use.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        columns: Sequence[str],
        start: int,
        stop: int,
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        kernels: KernelChoice[ReadingKernels] | None = None,
    ) -> None:
        self._start = start
        self._stop = stop
        self._walk = Walk(start=start, stop=stop)
        self._partition_name = f"partition {partition} of topic {topic}"
        self._assembly = Assembly(
            topic=topic,
            partition=partition,
            columns=columns,
            rows_max=rows_max,
            bytes_max=bytes_max,
        )
        self._group = Group()
        self._kernels = kernels or reading_choice()
        self._rows = empty_rows(0)

    def decode(
        self, data: memoryview, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Reads whole record batches; nothing of `data` is kept once the iterator has ended.

        `aborted` names transactions (producer, first offset) whose records are left out.
        """
        view = memoryview(data).cast("B")
        fetched = np.frombuffer(view, np.uint8)
        try:
            for batch in self._walk.wanted(view, aborted):
                if not self._group.add(batch, view, fetched):
                    yield from self._drain()
                    is_added = self._group.add(batch, view, fetched)
                    assert is_added
            yield from self._drain()
        except CorruptBatch as error:
            raise CorruptBatch(
                f"The batch at offset {self._walk.offset} of {self._partition_name} is corrupt: "
                f"{error}."
            ) from None

    @property
    def next_offset(self) -> int:
        """The first offset not seen yet; gaps and control batches count as seen."""
        return self._walk.next_offset

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that did not fill an Arrow batch."""
        yield from self._assembly.finish()

    def _drain(self) -> Iterator[pa.RecordBatch]:
        """Finds the records of the group and moves them into columns."""
        group = self._group
        if not group:
            return
        if group.record_count > len(self._rows.offset):
            self._rows = empty_rows(group.record_count)
        batches = group.batches()
        coming = self._coming(batches, group.record_count)
        kernels = self._kernels.choose(group.record_count, coming=coming)
        count = kernels.scan(group.source, batches, self._start, self._stop, self._rows)
        if count < 0:
            self._walk.offset = int(batches.base_offset[-1 - count])
            raise CorruptBatch("its records are malformed")
        yield from self._assembly.add(kernels, group.source, self._rows, count)
        group.clear()

    def _coming(self, batches: Batches, count: int) -> int:
        """How many records may still come, if they go on to fill offsets as these do."""
        last = int(batches.base_offset[-1]) + int(batches.last_offset_delta[-1])
        span = last + 1 - int(batches.base_offset[0])
        return (self._stop - self.next_offset) * count // max(1, span)
