"""Decodes and encodes messages; the code for a class and a version is compiled at first use."""

import struct
from typing import Any, TypeVar

from penstock.protocol.kafka.decoder_source import compile_decoder
from penstock.protocol.kafka.encoder_source import compile_encoder
from penstock.protocol.kafka.primitives import DecodeError
from penstock.protocol.kafka.schema import schema_of

__all__ = ["DecodeError", "decode", "encode", "encode_pieces"]

T = TypeVar("T")


def decode(
    message_class: type[T], version: int, buffer: memoryview | bytes | bytearray, position: int = 0
) -> T:
    """The message that fills the buffer from `position` to its end; DecodeError if none does."""
    decoders = schema_of(message_class).decoders
    decoder = decoders.get(version)
    if decoder is None:
        _check_version(message_class, version)
        decoder = decoders[version] = compile_decoder(message_class, version)
    if type(buffer) is not memoryview:
        buffer = memoryview(buffer)
    try:
        message: T = decoder(buffer, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"{message_class.__name__} is cut short") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"{message_class.__name__} has a string that is not UTF-8") from error
    return message


def encode(message: object, version: int) -> bytes:
    return b"".join(encode_pieces(message, version))


def encode_pieces(message: object, version: int) -> list[Any]:
    """The message as pieces in order; a value of a `records` field is a piece as it was given."""
    encoders = schema_of(type(message)).encoders
    encoder = encoders.get(version)
    if encoder is None:
        first, last = schema_of(type(message)).versions
        assert first <= version <= last, f"{type(message).__name__} has no version {version}"
        encoder = encoders[version] = compile_encoder(type(message), version)
    pieces: list[Any] = []
    encoder(message, pieces.append)
    return pieces


def _check_version(message_class: type, version: int) -> None:
    first, last = schema_of(message_class).versions
    if not first <= version <= last:
        raise DecodeError(f"{message_class.__name__} has no version {version}")
