"""What a setting is: its type, its default, the values it takes, and how those are written.

Values are kept and compared as text, as clients send them, in one normal form per value.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value: TypeAlias = bool | int | float | str | list[str]


class ConfigType(IntEnum):
    """Numbered as DescribeConfigs tells it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8


class BadValue(ValueError):
    """The message is the rest of a sentence that names the setting and the value, and perhaps how
    the value is shown in it."""

    def __init__(self, fault: str, shown: str | None = None) -> None:
        super().__init__(fault)
        self.shown = shown


# Says what is wrong with a parsed value, or None; raises BadValue itself to show it otherwise.
Check: TypeAlias = Callable[[Value], str | None]

_INTEGER_BOUNDS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}
_REPLICA = re.compile("[0-9]+:[0-9]+")
# Longer than any number in bounds; Python's own limit for int() is far higher.
_NUMBER_LENGTH_MAX = 40


class Setting(NamedTuple):
    """One setting of topics or of brokers."""

    name: str
    type: ConfigType
    # None: not set, so that a synonym or nothing decides.
    default: str | None
    documentation: str
    check: Check | None = None
    # False: accepted and kept for other tools, without effect on this broker.
    has_effect: bool = True
    # Broker settings only: may be changed while the broker runs, and acts at once.
    is_dynamic: bool = False
    # Broker settings only: may not be changed for all brokers at once.
    is_per_broker: bool = False
    # Broker settings only: can't be given at start, and is shown only where it was set.
    is_dynamic_only: bool = False
    # Topic settings only: the broker settings that give its default, the first that is set wins.
    synonyms: tuple["Synonym", ...] = ()
    # Broker settings only: the command line's own flag for it, which `--set` may not contradict.
    flag: str | None = None

    def parse(self, text: str) -> Value:
        """The typed value; raises BadValue with the reason."""
        value = _PARSERS[self.type](text.strip(), self.type)
        fault = None if self.check is None else self.check(value)
        if fault is not None:
            raise BadValue(fault)
        return value

    def normalise(self, text: str) -> str:
        return write(self.parse(text))


class Synonym(NamedTuple):
    """A broker setting that says the same as a topic's, perhaps in a larger unit."""

    name: str
    factor: int = 1


def table(*settings: Setting) -> Mapping[str, Setting]:
    rows = {setting.name: setting for setting in settings}
    assert len(rows) == len(settings), "a setting is defined twice"
    return rows


def write(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def invalid(name: str, text: str | None, fault: str) -> str:
    return f"Invalid value {text} for configuration {name}: {fault}"


# Checks


def at_least(low: int) -> Check:
    return lambda value: None if _number(value) >= low else f"Value must be at least {low}"


def between(low: float, high: float) -> Check:
    def check(value: Value) -> str | None:
        number = _number(value)
        if number < low:
            return f"Value must be at least {low}"
        return None if number <= high else f"Value must be no more than {high}"

    return check


def one_of(*choices: str) -> Check:
    listed = ", ".join(choices)
    return lambda value: None if value in choices else f"String must be one of: {listed}"


def some_of(*choices: str) -> Check:
    """For lists: every element is one of the choices, and none comes twice."""
    listed = ", ".join(choices)

    def check(value: Value) -> str | None:
        assert isinstance(value, list)
        if any(element not in choices for element in value):
            return f"String must be one of: {listed}"
        return None if len(set(value)) == len(value) else "Elements must not be repeated"

    return check


def throttled_replicas(name: str) -> Check:
    """For lists: `*`, or pairs of partition and broker."""
    fault = (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )

    def check(value: Value) -> str | None:
        assert isinstance(value, list)
        if value == ["*"] or all(_REPLICA.fullmatch(element) for element in value):
            return None
        raise BadValue(fault, shown=f"[{', '.join(value)}]")

    return check


def level_or_default(low: int, high: int, default: int) -> Check:
    """A compression level: the codec's own number for "default", or one of a range."""

    def check(value: Value) -> str | None:
        if value == default or low <= _number(value) <= high:
            return None
        return f"Value must be between {low} and {high} or equal to {default}"

    return check


def in_larger_unit(check: Check | None, factor: int) -> Check | None:
    """The check of a value that counts in a unit `factor` times as large.

    A negative one is not an amount, but says "forever" or the like, and that in every unit.
    """
    if check is None or factor == 1:
        return check

    def check_converted(value: Value) -> str | None:
        number = _number(value)
        return check(number if number < 0 else number * factor)

    return check_converted


def _number(value: Value) -> int | float:
    assert isinstance(value, int | float)
    return value


# Parsers, by type


def _parse_boolean(text: str, _: ConfigType) -> Value:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise BadValue("Expected value to be either true or false")
    return lowered == "true"


def _parse_string(text: str, _: ConfigType) -> Value:
    return text


def _parse_integer(text: str, kind: ConfigType) -> Value:
    low, high = _INTEGER_BOUNDS[kind]
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < _NUMBER_LENGTH_MAX):
        raise BadValue(f"Not a number of type {kind.name}")
    number = int(text)
    if not low <= number <= high:
        raise BadValue(f"Not a number of type {kind.name}")
    return number


def _parse_double(text: str, kind: ConfigType) -> Value:
    try:
        number = float(text)
    except ValueError:
        raise BadValue(f"Not a number of type {kind.name}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise BadValue(f"Not a number of type {kind.name}")
    return number


def _parse_list(text: str, _: ConfigType) -> Value:
    return [element for part in text.split(",") if (element := part.strip())]


_PARSERS: Mapping[ConfigType, Callable[[str, ConfigType], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.CLASS: _parse_string,
    ConfigType.INT: _parse_integer,
    ConfigType.SHORT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
}
