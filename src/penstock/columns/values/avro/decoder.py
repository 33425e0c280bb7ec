"""Avro values of a column, decoded all at once: the typed values, and why some could not be."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.columns.values.avro import codes
from penstock.columns.values.avro.building import NotText, build
from penstock.columns.values.avro.program import Program, compile_program
from penstock.columns.values.avro.running import Column, Runner, Walked
from penstock.columns.values.avro.schema import parse_schema
from penstock.columns.values.framing import FRAME_BYTES as FRAME_BYTES
from penstock.columns.values.results import Decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """What travels to the workers: the schema's text, and how many bytes of header to skip."""

    schema: str
    header: int = 0

    def open(self) -> "AvroDecoder":
        return AvroDecoder(self)


class AvroDecoder:
    def __init__(self, wanted: AvroFormat) -> None:
        self._program = compile_program(parse_schema(wanted.schema))
        self._runner = Runner(self._program, header=wanted.header)

    def decode(self, values: pa.Array) -> Decoded:
        column = Column.of(values)
        walked = self._runner.run(column)
        try:
            decoded = self._built(walked, len(column))
        except NotText:
            walked = self._runner.run(column, checking_text=True)
            decoded = self._built(walked, len(column))
        return Decoded(values=decoded, errors=_errors(walked, column, self._program))

    def _built(self, walked: Walked, length: int) -> pa.Array:
        return build(self._program.shape, walked, length, walked.status == codes.DONE)


def _errors(walked: Walked, column: Column, program: Program) -> pa.Array:
    failed = np.flatnonzero(walked.status > codes.ABSENT)
    reasons: list[str | None] = [None] * len(column)
    for row in failed.tolist():
        place = int(walked.places[row])
        left = int(column.ends[row] - column.starts[row]) - place
        path = program.paths[int(walked.stopped[row])]
        reasons[row] = _sentence(int(walked.status[row]), path, place, left)
    return pa.array(reasons, pa.string())


def _sentence(status: int, path: str, place: int, left: int) -> str:
    match status:
        case codes.NO_HEADER:
            return "The Avro value is shorter than the five bytes of its header."
        case codes.WRONG_MAGIC:
            return "The header of the Avro value does not start with a zero byte."
        case codes.LEFT_OVER:
            return f"After the Avro value {left} {'byte is' if left == 1 else 'bytes are'} left."
        case _:
            what = f"field {path!r}" if path else "value"
            return f"The Avro {what} can't be read at byte {place}: {codes.REASONS[status]}."
