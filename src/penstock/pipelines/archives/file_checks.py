"""Whether a data file is still what its task wrote: its bytes, its rows, its offsets."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipelines.archives.ledger import ArchivedFile

_CHUNK_BYTES = 4 * 1024 * 1024

Offsets = npt.NDArray[np.int64]


def check_file(root: Path, file: ArchivedFile) -> str | Offsets:
    """What is wrong with it, as a sentence, or the offsets that it holds."""
    path = root / file.path
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return f"The file {file.path} is missing."
    if size != file.size:
        return f"The file {file.path} has {size} bytes instead of {file.size}."
    if sha256_of(path) != file.sha256:
        return f"The file {file.path} was altered: its checksum differs."
    try:
        offsets = offsets_of(path)
    except (pa.ArrowException, KeyError, OSError):
        return f"The file {file.path} can't be read as Parquet."
    return _wrong_offsets(file, offsets) or offsets


def _wrong_offsets(file: ArchivedFile, offsets: Offsets) -> str:
    if len(offsets) != file.rows:
        return f"The file {file.path} has {len(offsets)} rows instead of {file.rows}."
    if np.any(np.diff(offsets) <= 0):
        return f"The file {file.path} holds offsets that are not in ascending order."
    if len(offsets) and (int(offsets[0]), int(offsets[-1])) != (file.first, file.last):
        return (
            f"The file {file.path} holds offsets {offsets[0]} to {offsets[-1]} instead of"
            f" {file.first} to {file.last}."
        )
    return ""


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def offsets_of(path: Path) -> Offsets:
    column = pq.read_table(path, columns=["offset"], partitioning=None).column("offset")
    return np.asarray(column.combine_chunks() if column.num_chunks else [], np.int64)
