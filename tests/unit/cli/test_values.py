"""Positions as people type them."""

import time
from datetime import UTC, datetime

import pytest

from penstock.client.positions import AtOffset, AtTime, Beginning, End, Last, parse_position

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Beginning()),
        ("Earliest", Beginning()),
        ("end", End()),
        ("latest", End()),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        (str(2**63 - 1), AtOffset(2**63 - 1)),
        ("-10", Last(10)),
        ("@1777636800000", AtTime(1_777_636_800_000)),
        ("15m", AtTime(NOW_MS - 15 * 60_000)),
        ("2h ago", AtTime(NOW_MS - 7_200_000)),
        ("500ms", AtTime(NOW_MS - 500)),
        ("1d", AtTime(NOW_MS - 86_400_000)),
        ("999999999w", AtTime(0)),
        ("2026-05-01T12:00:00Z", AtTime(1_777_636_800_000)),
        ("2026-05-01T14:00+02:00", AtTime(1_777_636_800_000)),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse_position(text, now_ms=NOW_MS) == position


def test_a_time_without_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        expected = int(datetime(2026, 5, 1, 3, 0, tzinfo=UTC).timestamp() * 1000)
        assert parse_position("2026-05-01T12:00", now_ms=NOW_MS) == AtTime(expected)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "--5", str(2**63), "@", "@-1", "5 m", "2026-13-01"]
)
def test_what_is_no_position_is_none(text: str) -> None:
    assert parse_position(text, now_ms=NOW_MS) is None
