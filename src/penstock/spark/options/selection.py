"""Which topics and partitions a query reads: exactly one of three options says it."""

import re
from dataclasses import dataclass

from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given, shown
from penstock.spark.options.partition_json import partitions_by_topic

_STRATEGIES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics, new ones too."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics whose names hold the pattern somewhere, new ones too."""

    regex: str

    def matches(self, topic: str) -> bool:
        return re.search(self.regex, topic) is not None


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions and no others, in the order of their numbers."""

    partitions: dict[str, tuple[int, ...]]


Selection = Topics | Pattern | Assigned


def read_selection(given: Given) -> Selection:
    chosen = [name for name in _STRATEGIES if name in given]
    if not chosen:
        raise OptionError("One of the options subscribe, subscribePattern or assign must be set.")
    if len(chosen) > 1:
        raise OptionError(
            "Only one of the options subscribe, subscribePattern and assign may be set, "
            f"not {' and '.join(chosen)}."
        )
    text = given.text(chosen[0]) or ""
    match chosen[0]:
        case "subscribe":
            return _topics(text)
        case "subscribePattern":
            return _pattern(text)
        case _:
            return _assigned(text)


def _topics(text: str) -> Topics:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise OptionError(f"The option subscribe does not name a topic: it is {shown(text)}.")
    return Topics(names)


def _pattern(text: str) -> Pattern:
    if not text:
        raise OptionError("The option subscribePattern is empty.")
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise OptionError(
            f"The option subscribePattern is not a regular expression: {error} in {shown(text)}."
        ) from None
    return Pattern(text)


def _assigned(text: str) -> Assigned:
    partitions = partitions_by_topic("assign", text)
    if not partitions:
        raise OptionError(f"The option assign does not name a partition: it is {shown(text)}.")
    return Assigned(partitions)
