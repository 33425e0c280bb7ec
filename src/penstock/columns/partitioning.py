"""Puts keys into partitions as Kafka's Java producer does."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.arrow_pieces import pieces
from penstock.columns.kernels import KernelChoice, WritingKernels, writing_choice

# Rows without a key have no partition of their own.
NO_PARTITION = -1

_POSITIVE_MASK = np.uint32(0x7FFFFFFF)


def murmur2_partitions(
    keys: pa.Array,
    partition_count: int,
    kernels: KernelChoice[WritingKernels] | None = None,
) -> npt.NDArray[np.int32]:
    """The partition of each key (bytes or text) among this many; -1 where the key is null."""
    assert partition_count > 0
    found = pieces(keys)
    hashes = np.empty(len(keys), np.uint32)
    chosen = (kernels or writing_choice()).choose(len(keys))
    chosen.murmur2(found.data, found.position, found.length, hashes)
    partitions = ((hashes & _POSITIVE_MASK) % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[found.length < 0] = NO_PARTITION
    return partitions
