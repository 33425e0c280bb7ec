"""Text: UTF-8 by Spark itself, any other encoding by Python's codec of that name."""

import codecs
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock.columns.values.refusals import DecodeRefused
from penstock.columns.values.results import Decoded
from penstock.spark.values.frames import quoted, with_decoded

NOT_UTF_8 = "The value is not valid UTF-8."


def decode_text(
    frame: DataFrame, *, column: str, into: str, error: str, encoding: object
) -> DataFrame:
    name = codec_name(encoding)
    value = quoted(column)
    if name != "utf-8":
        wanted = TextFormat(encoding=name)
        return with_decoded(frame, value.cast("binary"), wanted, into, error)
    text = value.cast("string")
    valid = sf.is_valid_utf8(text)
    kept = [quoted(each) for each in frame.columns]
    decoded = sf.when(valid, text).alias(into)
    return frame.select(*kept, decoded, sf.when(~valid, sf.lit(NOT_UTF_8)).alias(error))


def codec_name(encoding: object) -> str:
    """Python's name for an encoding of text."""
    try:
        if not isinstance(encoding, str):
            raise LookupError
        found = codecs.lookup(encoding)
        # A codec between bytes and bytes (base64, zip) is found too, but refused here.
        "a".encode(found.name)
    except (LookupError, UnicodeError) as error:
        raise DecodeRefused(f"The text encoding {encoding!r} is unknown.") from error
    return found.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    encoding: str

    def open(self) -> "TextDecoder":
        return TextDecoder(self.encoding)


class TextDecoder:
    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    def decode(self, values: pa.Array) -> Decoded:
        texts: list[str | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            text, reason = self._one(value)
            texts.append(text)
            reasons.append(reason)
        return Decoded(values=pa.array(texts, pa.string()), errors=pa.array(reasons, pa.string()))

    def _one(self, value: bytes | None) -> tuple[str | None, str | None]:
        if value is None:
            return None, None
        try:
            text = value.decode(self._encoding)
            # Some codecs let lone surrogates through, which no string of Spark's can hold.
            text.encode("utf-8")
        except UnicodeError:
            return None, f"The value is not valid text in the encoding {self._encoding}."
        return text, None
