"""Bounds of a replay as people type them: a time, an offset, an offset of one partition."""

import re
import time
from dataclasses import dataclass

import click

from penstock.client.positions import parse_position

TIME_HELP = (
    "a time (2026-05-01T12:00), milliseconds since 1970 (@1777636800000), or how long ago (15m, 2h)"
)
_BOUND = re.compile(r"(?:(?P<partition>[0-9]{1,9}):)?(?P<offset>[0-9]{1,18})")

# The partition, or None for all of them, and the offset.
OffsetBound = tuple[int | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    ms: int
    """Since 1970."""
    words: str | None = None
    """How long ago, if it was given like that: the same words mean another time later."""


class TimeType(click.ParamType[Moment]):
    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        from penstock.client.positions import AtTime

        text = str(value).strip().lower()
        position = parse_position(text, now_ms=int(time.time() * 1000))
        if not isinstance(position, AtTime):
            self.fail(f"{value!r} is not a time; give {TIME_HELP}", param, ctx)
        is_fixed = position == parse_position(text, now_ms=0)
        return Moment(ms=position.timestamp_ms, words=None if is_fixed else text)


class OffsetBoundType(click.ParamType[OffsetBound]):
    name = "[PARTITION:]OFFSET"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> OffsetBound:
        found = _BOUND.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is neither an offset nor PARTITION:OFFSET", param, ctx)
        partition = found["partition"]
        return None if partition is None else int(partition), int(found["offset"])
