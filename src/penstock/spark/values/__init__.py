"""Values decoded on request: text, JSON, Avro and Protobuf, with a reason where that fails."""

from penstock.columns.values.refusals import DecodeRefused
from penstock.spark.values.decoding import decode

__all__ = ["DecodeRefused", "decode"]
