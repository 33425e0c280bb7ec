"""Running a program over a column of values: compiled by numba where that pays, else as Python."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.values.avro.program import Program
from penstock.columns.values.avro.walking import gather, walk

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Below this many rows in all, importing numba takes longer than walking over them in Python.
COMPILED_ROWS_MIN = 4_000
# The same where nothing compiled can be kept on disk, so that each process compiles for itself.
UNCACHED_ROWS_MIN = 100_000
KERNELS_VARIABLE = "PENSTOCK_KERNELS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    walk: Callable[..., None]
    gather: Callable[..., None]
    cached: bool

    @property
    def rows_min(self) -> int:
        return COMPILED_ROWS_MIN if self.cached else UNCACHED_ROWS_MIN


@cache
def kernels() -> Kernels | None:
    """None where numba is not installed, or does not compile."""
    try:
        numba: Any = import_module("numba")
    except Exception:
        # Whatever keeps numba from working: Python walks to the same results.
        return None
    if numba.config.DISABLE_JIT:
        # What is not compiled would count in the eight bits of a byte of numpy's.
        return None
    njit = numba.njit
    try:
        options: dict[str, Any] = {"nogil": True, "cache": True}
        return Kernels(walk=njit(**options)(walk), gather=njit(**options)(gather), cached=True)
    except RuntimeError:  # No folder can be written to.
        return Kernels(walk=njit(nogil=True)(walk), gather=njit(nogil=True)(gather), cached=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A binary column of Arrow's, as the walk reads it."""

    data: Bytes
    starts: Int64s
    ends: Int64s
    present: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, values: pa.Array) -> "Column":
        if not pa.types.is_large_binary(values.type):
            values = values.cast(pa.large_binary())
        _, offsets, data = values.buffers()
        length = len(values)
        bounds = (
            np.frombuffer(offsets, np.int64, length + 1, values.offset * 8)
            if length
            else np.zeros(1, np.int64)
        )
        return cls(
            data=np.frombuffer(data or b"\0", np.uint8),
            starts=bounds[:-1],
            ends=bounds[1:],
            present=values.is_valid().to_numpy(zero_copy_only=False).view(np.uint8),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """All cells that the walk wrote, and how each row ended."""

    data: Bytes
    cells: Int64s
    begins: Int64s
    filled: Int64s
    status: Int64s
    places: Int64s
    stopped: Int64s
    compiled: Kernels | None

    def column(self, number: int) -> Int64s:
        begin = int(self.begins[number])
        return self.cells[begin : begin + int(self.filled[number])]

    def pieces(self, starts: Int64s, lengths: Int64s) -> pa.Buffer:
        """The bytes of all pieces, one behind the other."""
        if self.compiled is None:
            view = self.data.tobytes()
            ends = (starts + lengths).tolist()
            joined = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])
            return pa.py_buffer(joined)
        out = np.empty(int(lengths.sum()), np.uint8)
        self.compiled.gather(self.data, starts, lengths, out)
        return pa.py_buffer(out)


class Runner:
    """Holds one program ready to run; which kernels it uses depends on the rows it has seen."""

    def __init__(self, program: Program, *, header: int) -> None:
        self.program = program
        self.header = header
        self._rows_seen = 0
        self._arrays = [
            np.array(part, np.int64)
            for part in (
                program.codes,
                program.a,
                program.b,
                program.low,
                program.high,
                # An empty table would have no type of its own.
                program.table or [0],
                program.row_columns,
            )
        ]

    def run(self, column: Column, *, checking_text: bool = False) -> Walked:
        self._rows_seen += len(column)
        compiled = self._kernels()
        run = compiled.walk if compiled is not None else _walk_in_python
        program = self.program
        status, places, stopped = (np.zeros(len(column), np.int64) for _ in range(3))
        frames = [np.zeros(program.depth + 1, np.int64) for _ in range(2)]

        def walk_once(cells: Int64s, begins: Int64s, writing: bool) -> Int64s:
            filled, saved = (np.zeros(program.column_count, np.int64) for _ in range(2))
            given = (column.data, column.starts, column.ends, column.present, self.header)
            state = (cells, begins, filled, saved, *frames, status, places, stopped)
            run(*given, *self._arrays, *state, writing, checking_text)
            return filled

        counts = np.full(program.column_count, len(column), np.int64)
        if program.depth:
            # How many items there are is known only after a walk that writes nothing.
            counts = walk_once(np.zeros(0, np.int64), counts, False)
        cells, begins = np.zeros(int(counts.sum()), np.int64), np.cumsum(counts) - counts
        filled = walk_once(cells, begins, True)
        return Walked(
            data=column.data,
            cells=cells,
            begins=begins,
            filled=filled,
            status=status,
            places=places,
            stopped=stopped,
            compiled=compiled,
        )

    def _kernels(self) -> Kernels | None:
        forced = os.environ.get(KERNELS_VARIABLE)
        if forced == "numpy" or (forced != "numba" and self._rows_seen < COMPILED_ROWS_MIN):
            return None
        found = kernels()
        if found is None or forced == "numba":
            return found
        return found if self._rows_seen >= found.rows_min else None


def _walk_in_python(data: Bytes, *parts: Any) -> None:
    """Lists are several times faster than arrays to read and write one number at a time."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    lists = {id(part): part.tolist() for part in arrays}
    walk(data.tobytes(), *(lists.get(id(part), part) for part in parts))
    for part in arrays:
        if part.flags.writeable:
            part[:] = lists[id(part)]
