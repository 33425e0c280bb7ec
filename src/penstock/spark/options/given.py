"""Options as Spark hands them over, looked up without regard to case and read as typed values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.spark.options.errors import OptionError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_DURATION = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
# Spark's own units first, and the words that people write for them.
_SECONDS_OF_UNIT = {
    "us": 1e-6,
    "ms": 1e-3,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "": 1e-3,
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_TEXT_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Given:
    """Options by their names in lower case; every question names an option as the documents do."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Given":
        # An option may arrive without a value when a caller passed None for it.
        return cls({name.lower(): text for name, text in options.items() if text is not None})

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str) -> str | None:
        value = self.values.get(name.lower())
        return None if value is None else value.strip()

    def text_filled(self, name: str) -> str | None:
        """The text of an option that must not be empty when it is given."""
        text = self.text(name)
        if text == "":
            raise OptionError(f"The option {name} is empty.")
        return text

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"The option {name} must be true or false, not {shown(text)}.")
        return text.lower() == "true"

    def number(self, name: str, *, least: int = 0, most: int = LONG_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise OptionError(
                f"The option {name} must be {_range_text(least, most)}, not {shown(text)}."
            )
        return number

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words, in whatever case it is written."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in choices:
            wanted = " or ".join((", ".join(choices[:-1]), choices[-1]))
            raise OptionError(f"The option {name} must be {wanted}, not {shown(text)}.")
        return text.lower()

    def seconds(self, name: str, default: float) -> float:
        """A time such as 500ms, 15m or 2 minutes; a bare number means milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.lower())
        if match is None or match[2] not in _SECONDS_OF_UNIT:
            raise OptionError(
                f"The option {name} must be a time such as 500ms, 30s, 15m, 2h or 1d, "
                f"not {shown(text)}."
            )
        return int(match[1]) * _SECONDS_OF_UNIT[match[2]]


def shown(text: str) -> str:
    """A value inside a sentence, in quotes and cut to a length that can be read."""
    if len(text) > _TEXT_SHOWN_MAX:
        text = text[:_TEXT_SHOWN_MAX] + "..."
    return f'"{text}"'


def _range_text(least: int, most: int) -> str:
    if most not in (LONG_MAX, INT_MAX):
        return f"a whole number from {least} to {most}"
    if least == 1:
        return "a positive whole number"
    return f"a whole number of at least {least}"
