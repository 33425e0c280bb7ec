"""Which kernels do the work: compiled ones where they pay, numpy's otherwise.

Loading numba takes half a second, and compiling takes seconds where nobody has compiled before.
So a process begins with numpy and changes over once it has seen, or can expect, this many records
that the change pays. It stays with numpy where numba is missing, or finds no place to keep what
it compiles: every worker process would have to compile again. While one process compiles, others
go on with numpy, so that workers that start together don't all compile the same.

The environment variable PENSTOCK_KERNELS (numpy or numba) forces one of the two.
"""

import fcntl
import importlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from penstock.columns import numpy_reading, numpy_writing
from penstock.columns.tables import (
    Batches,
    Bytes,
    HeaderRows,
    Integers,
    Offsets,
    Rows,
    WrittenRows,
)

KERNELS_VARIABLE = "PENSTOCK_KERNELS"

# What numpy takes for this many records is about what loading numba takes.
COMPILED_RECORDS_MIN = 500_000

_log = logging.getLogger(__name__)


class ReadingKernels(Protocol):
    def scan(self, source: Bytes, batches: Batches, start: int, stop: int, rows: Rows) -> int: ...

    def scan_headers(
        self, source: Bytes, positions: Integers, counts: Integers, headers: HeaderRows
    ) -> None: ...

    def gather(
        self,
        source: Bytes,
        positions: Integers,
        lengths: Integers,
        data: Bytes,
        filled: int,
        ends: Offsets,
        valid: Bytes,
    ) -> int: ...


class WritingKernels(Protocol):
    def write(
        self,
        chosen: Integers,
        first: int,
        rows: WrittenRows,
        key_data: Bytes,
        value_data: Bytes,
        headers_data: Bytes,
        out: Bytes,
        limit: int,
    ) -> tuple[int, int, int]: ...

    def write_headers(
        self,
        firsts: Integers,
        counts: Integers,
        headers: HeaderRows,
        name_data: Bytes,
        value_data: Bytes,
        out: Bytes,
        positions: Integers,
        lengths: Integers,
    ) -> int: ...

    def murmur2(
        self,
        data: Bytes,
        positions: Integers,
        lengths: Integers,
        hashes: npt.NDArray[np.uint32],
    ) -> None: ...


KernelsType = TypeVar("KernelsType")


class KernelChoice(Generic[KernelsType]):
    """One kind of kernels in two makes, and which of them this process uses at present."""

    def __init__(self, *, plain: KernelsType, compiled_module: str, forced: str | None) -> None:
        self._current = plain
        self._compiled_module = compiled_module
        self._is_forced = forced == "numba"
        self._is_settled = forced == "numpy"
        self._records = 0

    def choose(self, records: int, *, coming: int = 0) -> KernelsType:
        """The kernels for an input of this many records, with perhaps more of them to come."""
        if not self._is_settled:
            self._records += records
            if self._is_forced or self._records + coming >= COMPILED_RECORDS_MIN:
                self._try_compiled()
        return self._current

    def _try_compiled(self) -> None:
        with _turn(self._compiled_module) as is_ours:
            if not is_ours and not self._is_forced:
                return
            self._is_settled = True
            try:
                module = importlib.import_module(self._compiled_module)
            except Exception as error:
                # Whatever keeps numba from working: the other kernels give the same results.
                if self._is_forced:
                    raise
                _log.info("Records are decoded without numba: %s", error)
                return
            self._current = cast(KernelsType, module)


@contextmanager
def _turn(name: str) -> Iterator[bool]:
    """Whether no other process of this user is at it just now."""
    path = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}.lock"
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        # Without a lock, several processes may compile the same: slower, but right.
        yield True
        return
    try:
        yield _is_locked(lock)
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _forced() -> str | None:
    forced = os.environ.get(KERNELS_VARIABLE)
    if forced not in (None, "", "numpy", "numba"):
        raise ValueError(f"{KERNELS_VARIABLE} must be numpy or numba, not {forced}.")
    return forced


@cache
def reading_choice() -> KernelChoice[ReadingKernels]:
    """The choice of this process; Spark keeps a worker process for many tasks."""
    return KernelChoice(
        plain=cast(ReadingKernels, numpy_reading),
        compiled_module="penstock.columns.numba_reading",
        forced=_forced(),
    )


@cache
def writing_choice() -> KernelChoice[WritingKernels]:
    return KernelChoice(
        plain=cast(WritingKernels, numpy_writing),
        compiled_module="penstock.columns.numba_writing",
        forced=_forced(),
    )
