"""Both makes of kernels, and record batches of any kind to try them on."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.columns import numpy_reading, numpy_writing
from penstock.columns.decoding import Decoder
from penstock.columns.kernels import KernelChoice, ReadingKernels, WritingKernels
from penstock.columns.layout import COLUMNS
from penstock.records.batch import HEADER_SIZE, BatchHeader, build_batch, seal
from penstock.records.compression import Codec, compress
from penstock.records.record import Record

MAKES = ("numpy", "numba")
NO_BOUND = 2**62


def reading(make: str) -> KernelChoice[ReadingKernels]:
    return KernelChoice(
        plain=numpy_reading,
        compiled_module="penstock.columns.numba_reading",
        forced=make,
    )


def writing(make: str) -> KernelChoice[WritingKernels]:
    return KernelChoice(
        plain=numpy_writing,
        compiled_module="penstock.columns.numba_writing",
        forced=make,
    )


def decode(
    make: str,
    *answers: bytes,
    columns: Sequence[str] = COLUMNS,
    start: int = 0,
    stop: int = NO_BOUND,
    aborted: Sequence[tuple[int, int]] = (),
    **limits: int,
) -> list[pa.RecordBatch]:
    decoder = Decoder(
        topic="orders",
        partition=3,
        columns=columns,
        start=start,
        stop=stop,
        kernels=reading(make),
        **limits,
    )
    batches: list[pa.RecordBatch] = []
    for answer in answers:
        batches += decoder.decode(memoryview(answer), aborted)
    batches += decoder.finish()
    for batch in batches:
        batch.validate(full=True)
    return batches


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def batch_of(payload: bytes, *, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """A batch with a right checksum around records of any bytes."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=max(0, count - 1),
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return seal(header._replace(**fields), compress(codec, payload))


def payload_of(records: Sequence[Record]) -> bytes:
    return build_batch(records)[HEADER_SIZE:]


_BYTES = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)

RECORDS = st.builds(
    Record,
    timestamp_ms=st.integers(-(2**41), 2**42),
    key=_BYTES,
    value=_BYTES,
    headers=st.lists(st.tuples(st.text(max_size=10), _BYTES), max_size=4).map(tuple),
)
