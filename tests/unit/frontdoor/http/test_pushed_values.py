"""Proves that values are found in what clients push, and that no bytes do harm."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.doors.calls import ClientValues
from penstock.frontdoor.http import metrics
from penstock.frontdoor.http.pushed_values import pushed_values


def message(number: int, content: bytes) -> bytes:
    assert len(content) < 1 << 14
    size = len(content)
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7]) + content


def metric(name: str, kind: int, *points: float | int) -> bytes:
    packed = b"".join(
        message(1, bytes([6 << 3 | 1]) + struct.pack("<q", point))
        if isinstance(point, int)
        else message(1, bytes([4 << 3 | 1]) + struct.pack("<d", point))
        for point in points
    )
    return message(2, message(1, name.encode()) + message(kind, packed))


def pushed(*metrics: bytes) -> bytes:
    return message(1, message(1, b"\x0a\x00") + message(2, b"".join(metrics)))


def test_numbers_are_found_by_name() -> None:
    otlp = pushed(metric("rate", 5, 1.5), metric("count", 7, 3, 4), metric("histogram", 9, 1))
    assert pushed_values(otlp) == {"rate": 1.5, "count": 7.0}


def test_what_is_cut_off_gives_what_was_before() -> None:
    whole = metric("rate", 5, 1.5)
    assert pushed_values(message(1, message(2, whole + b"\x12\x7f"))) == {"rate": 1.5}


@given(st.binary(max_size=300))
def test_any_bytes_give_something(data: bytes) -> None:
    pushed_values(data)
    pushed_values(pushed(data))


def test_the_number_of_series_is_bounded() -> None:
    otlp = pushed(*(metric(f"m{number}", 5, 1.0) for number in range(100)))
    clients = [ClientValues(client_id="c", instance_id=str(n), otlp=otlp) for n in range(60)]
    samples, left_out = metrics.client_samples(clients)
    assert (len(samples), left_out) == (metrics.CLIENT_SERIES_MAX, 1_000)
