"""Bounds of a replay as people type them: a time, an offset, an offset of one partition."""

import re
import time

import click

from penstock.cli.values import parse_position

TIME_HELP = (
    "a time (2026-05-01T12:00), milliseconds since 1970 (@1777636800000), or how long ago (15m, 2h)"
)
_BOUND = re.compile(r"(?:(?P<partition>[0-9]{1,9}):)?(?P<offset>[0-9]{1,18})")

# The partition, or None for all of them, and the offset.
OffsetBound = tuple[int | None, int]


class TimeType(click.ParamType[int]):
    """A time; the value is in milliseconds since 1970."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from penstock.client.offsets import AtTime

        position = parse_position(str(value), now_ms=int(time.time() * 1000))
        if not isinstance(position, AtTime):
            self.fail(f"{value!r} is no time; give {TIME_HELP}", param, ctx)
        return position.timestamp_ms


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
