"""Proves that any bytes give a value or DecodeError: no other exception, no unbounded memory."""

import random
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import DecodeError, decode, encode
from penstock.protocol.kafka.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from penstock.protocol.kafka.schema import schema_of
from tests.wire.samples import MESSAGE_VERSIONS, name_of, sample

MUTATIONS = 60
# Lengths at the edges of what a length field or a varint can say.
LENGTHS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x00",
)


@pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=name_of)
def test_mutated_messages(case: tuple[type, int]) -> None:
    message, version = case
    rng = random.Random(name_of(case))
    for _ in range(MUTATIONS):
        frame = bytearray(encode(sample(message, version, rng), version))
        for _ in range(rng.choice((1, 1, 2, 5))):
            mutate(frame, rng)
        with suppress(DecodeError):
            decode(message, version, frame)


def mutate(frame: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(frame) + 1)
    match rng.randrange(5):
        case 0 if at < len(frame):
            frame[at] ^= 1 << rng.randrange(8)
        case 1:
            del frame[at:]
        case 2:
            length = rng.choice(LENGTHS)
            frame[at : at + len(length)] = length
        case 3:
            frame[at:at] = rng.randbytes(rng.randrange(1, 6))
        case _:
            del frame[at : at + rng.randrange(1, 4)]


@pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=name_of)
def test_every_truncation_is_refused(case: tuple[type, int]) -> None:
    message, version = case
    frame = encode(sample(message, version, random.Random(name_of(case))), version)
    step = max(1, len(frame) // 60)
    for end in range(0, len(frame), step):
        with pytest.raises(DecodeError):
            decode(message, version, frame[:end])


@pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=name_of)
def test_an_addition_is_ignored_in_a_request_and_refused_in_a_response(
    case: tuple[type, int],
) -> None:
    message, version = case
    value = sample(message, version, random.Random(name_of(case)))
    frame = encode(value, version)
    if message.__name__.endswith("Request"):
        assert decode(message, version, frame + b"\0") == decode(message, version, frame)
    else:
        with pytest.raises(DecodeError):
            decode(message, version, frame + b"\0")


@settings(max_examples=1_500, deadline=None)
@given(st.sampled_from(MESSAGE_VERSIONS), st.binary(max_size=80))
def test_random_bytes(case: tuple[type, int], frame: bytes) -> None:
    with suppress(DecodeError):
        decode(case[0], case[1], frame)


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(sorted(EXCHANGES)), st.integers(-1, 20), st.binary(max_size=40))
def test_random_headers(api_key: int, version: int, rest: bytes) -> None:
    frame = memoryview(struct.pack(">hh", api_key, version) + rest)
    with suppress(DecodeError):
        _, position = decode_request_header(frame)
        assert position <= len(frame)
    with suppress(DecodeError):
        _, position = decode_response_header(api_key, version, frame)
        assert position <= len(frame)


def test_random_frames_from_header_to_body() -> None:
    """A door's whole path: header first, then the body in the version that the header names."""
    rng = random.Random(20)
    for _ in range(20_000):
        api_key = rng.choice(list(EXCHANGES))
        request = EXCHANGES[api_key].request
        version = rng.randint(*schema_of(request).versions)
        body = encode(sample(request, version, rng), version) if rng.random() < 0.1 else b""
        frame = bytearray(encode_request_header(api_key, version, 1, "client") + body)
        mutate(frame, rng)
        with suppress(DecodeError):
            header, position = decode_request_header(memoryview(frame))
            named = EXCHANGES.get(header.api_key)  # type: ignore[call-overload]
            if named is not None:
                decode(named.request, header.api_version, frame, position)


@pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=name_of)
def test_huge_lengths_allocate_nothing(case: tuple[type, int]) -> None:
    """A megabyte that claims the largest length everywhere must not cost many megabytes."""
    message, version = case
    frames = [length * (2**20 // len(length)) for length in LENGTHS[:5]]
    with suppress(DecodeError):
        decode(message, version, b"")
    tracemalloc.start()
    try:
        for frame in frames:
            with suppress(DecodeError):
                decode(message, version, frame)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
