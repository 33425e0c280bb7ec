"""Positions and times as people type them: the end, offset 42, the last ten, 15 minutes ago."""

import re
import time
from datetime import datetime

import click

POSITION_HELP = (
    "beginning, end, an offset (42), the last N (-10), a time (2026-05-01T12:00), "
    "milliseconds since 1970 (@1777636800000), or how long ago (15m, 2h, 1d)"
)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d|w)(?: ago)?")
_OFFSET_MAX = 2**63 - 1


class PositionType(click.ParamType[object]):
    """A position in a partition; the value is one of the positions of `penstock.client.offsets`."""

    name = "POSITION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        position = parse_position(value, now_ms=int(time.time() * 1000))
        if position is None:
            self.fail(f"{value!r} is not a position; give {POSITION_HELP}", param, ctx)
        return position


class KeptType(click.ParamType[object]):
    """How much is left at the end of a partition: a number of records, or an age."""

    name = "AMOUNT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        kept = _kept(value.strip().lower(), int(time.time() * 1000))
        if kept is None:
            self.fail(
                f"{value!r} is neither a number of records nor an age such as 2h or 7d", param, ctx
            )
        return kept


def parse_position(text: str, *, now_ms: int) -> object | None:
    """The position that `text` names, or None when it names none."""
    # Imported late: it loads librdkafka, which `penstock up` must not pay for.
    from penstock.client.offsets import AtOffset, AtTime, Beginning, End, Last

    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Beginning()
    if word in ("end", "latest"):
        return End()
    if re.fullmatch(r"[0-9]{1,19}", word) and int(word) <= _OFFSET_MAX:
        return AtOffset(int(word))
    if re.fullmatch(r"-[0-9]{1,18}", word):
        return Last(-int(word))
    timestamp_ms = _timestamp_ms(word, now_ms)
    return None if timestamp_ms is None else AtTime(timestamp_ms)


def _kept(word: str, now_ms: int) -> object | None:
    from penstock.client.offsets import AtTime, Last

    if re.fullmatch(r"[0-9]{1,18}", word):
        return Last(int(word))
    ago = _AGO.fullmatch(word)
    return None if ago is None else AtTime(_ago_ms(ago, now_ms))


def _timestamp_ms(word: str, now_ms: int) -> int | None:
    if re.fullmatch(r"@[0-9]{1,18}", word):
        return int(word[1:])
    if ago := _AGO.fullmatch(word):
        return _ago_ms(ago, now_ms)
    try:
        # Without a zone a time is meant as the clock on the wall shows it.
        return max(int(datetime.fromisoformat(word.upper()).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


def _ago_ms(ago: "re.Match[str]", now_ms: int) -> int:
    return max(now_ms - int(ago["count"]) * _UNITS_MS[ago["unit"]], 0)
