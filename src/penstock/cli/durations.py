"""Durations as people type them: a number with a unit."""

import re
from types import MappingProxyType

import click

UNITS_MS = MappingProxyType({"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000})
_DURATION = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h)")


def duration_ms(text: str) -> int | None:
    """None for what is not a duration with a unit."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found["count"]) * UNITS_MS[found["unit"]]


# In older releases of click it takes no parameter.
class Duration(click.ParamType):  # type: ignore[type-arg]
    """An option's value in milliseconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        found = duration_ms(str(value))
        if found is None:
            self.fail(f"{value!r} needs a unit, as in 500ms, 60s, 5m or 1h", param, ctx)
        return found


DURATION = Duration()
