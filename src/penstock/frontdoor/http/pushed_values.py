"""Reads the values out of what a client pushes: OTLP's MetricsData in protobuf (KIP-714).

Only numbers by name are wanted, so this follows the few fields that lead to them and skips all
else. What clients send may be anything: bytes that are no such message give what was read so far.

    MetricsData.resource_metrics 1 > ResourceMetrics.scope_metrics 2 > ScopeMetrics.metrics 2
    > Metric { name 1, gauge 5, sum 7 } > data_points 1 > NumberDataPoint { double 4, int64 6 }
"""

import math
import struct
from collections.abc import Iterator
from typing import Final

VALUES_MAX: Final = 2_000
NAME_LENGTH_MAX: Final = 200
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NAME, _GAUGE, _SUM = 1, 5, 7
_DOUBLE, _INTEGER = 4, 6

Field = tuple[int, int, memoryview | int]


class _Malformed(ValueError):
    pass


def pushed_values(otlp: bytes) -> dict[str, float]:
    """By the names of the metrics; where one has several points, their sum."""
    values: dict[str, float] = {}
    try:
        for resource in _messages(memoryview(otlp), 1):
            for scope in _messages(resource, 2):
                for metric in _messages(scope, 2):
                    _read_metric(metric, values)
    except _Malformed:
        pass
    return values


def _read_metric(metric: memoryview, values: dict[str, float]) -> None:
    name, points = "", []
    for number, wire, value in _fields(metric):
        if not isinstance(value, memoryview) or wire != _BYTES:
            continue
        if number == _NAME:
            name = bytes(value[:NAME_LENGTH_MAX]).decode(errors="replace")
        elif number in (_GAUGE, _SUM):
            points += [_point(point) for point in _messages(value, 1)]
    found = [point for point in points if point is not None]
    if name and found and (name in values or len(values) < VALUES_MAX):
        values[name] = math.fsum(found) if all(map(math.isfinite, found)) else found[0]


def _point(point: memoryview) -> float | None:
    for number, wire, value in _fields(point):
        if wire == _FIXED64 and isinstance(value, memoryview):
            if number == _DOUBLE:
                return float(struct.unpack("<d", value)[0])
            if number == _INTEGER:
                return float(struct.unpack("<q", value)[0])
    return None


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, wire, value in _fields(data):
        if number == wanted and wire == _BYTES and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[Field]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise _Malformed
        if position + size > len(data):
            raise _Malformed
        yield number, wire, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position
    raise _Malformed
