"""Values decoded on request: text, JSON, Avro and Protobuf, with a reason where that fails."""

from penstock.spark.values.decoding import decode
from penstock.spark.values.refusals import DecodeRefused

__all__ = ["DecodeRefused", "decode"]
