"""Durations as text: ISO 8601 as Java reads it."""

import re
from typing import Final

# Each number may have a sign, and so may the whole.
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?"
    r"(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS: Final = (24 * 3600, 3600, 60, 1)
_DURATION_LENGTH_MAX: Final = 100
_SECONDS_MAX: Final = 2**63 - 1


def duration_ms(text: str) -> int | None:
    """None where it is not a duration, or a negative one."""
    found = _DURATION.fullmatch(text) if len(text) <= _DURATION_LENGTH_MAX else None
    if found is None:
        return None
    sign, *numbers, fraction = found.groups()
    if not any(numbers):
        return None
    seconds = sum(
        int(number or 0) * factor for number, factor in zip(numbers, _SECONDS, strict=True)
    )
    micros = int((fraction or "").ljust(6, "0")[:6])
    is_backwards = (numbers[-1] or "").startswith("-")
    whole = seconds * 1_000_000 + (-micros if is_backwards else micros)
    whole = -whole if sign == "-" else whole
    return whole // 1_000 if whole >= 0 and abs(seconds) <= _SECONDS_MAX else None
