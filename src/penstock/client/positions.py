"""Positions in a partition as people name them: the end, offset 42, the last ten, an hour ago."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from penstock.client.errors import ClientError

POSITION_HELP = (
    "beginning, end, an offset (42), the last N (-10), a time (2026-05-01T12:00), "
    "milliseconds since 1970 (@1777636800000), or how long ago (15m, 2h, 1d)"
)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d|w)(?: ago)?")
_OFFSET_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is kept."""


@dataclass(frozen=True, slots=True)
class End:
    """Behind the last record."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """This many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than this time; the end if there is none."""

    timestamp_ms: int


Position = Beginning | End | AtOffset | Last | AtTime

# A position as it is given: an offset, a time, the word of a command (`-10`, `15m`), or one for
# each partition.
Bound: TypeAlias = int | str | datetime | Position | None


def position_of(
    bound: Bound | Mapping[int, Bound], partition: int, default: Position, *, now_ms: int
) -> Position:
    """What `bound` means for a partition. Raises ClientError for text that names no position."""
    given = bound.get(partition) if isinstance(bound, Mapping) else bound
    match given:
        case None:
            return default
        case datetime():
            return AtTime(_milliseconds(given))
        case int():
            return AtOffset(given) if given >= 0 else Last(-given)
        case str():
            found = parse_position(given, now_ms=now_ms)
            if found is None:
                raise ClientError(f"{given!r} is not a position; give {POSITION_HELP}.")
            return found
        case _:
            return given


def parse_position(text: str, *, now_ms: int) -> Position | None:
    """The position that `text` names, or None when it names none."""
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


def parse_kept(text: str, *, now_ms: int) -> Last | AtTime | None:
    """How much is left at the end of a partition: a number of records, or an age."""
    word = text.strip().lower()
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
        return _milliseconds(datetime.fromisoformat(word.upper()))
    except (ValueError, OverflowError):
        return None


def _milliseconds(at: datetime) -> int:
    """The first one that is not before this time. Floats are not exact enough to find it."""
    return max(-((_EPOCH - at.astimezone(UTC)) // timedelta(milliseconds=1)), 0)


def _ago_ms(ago: "re.Match[str]", now_ms: int) -> int:
    return max(now_ms - int(ago["count"]) * _UNITS_MS[ago["unit"]], 0)
