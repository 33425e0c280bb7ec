"""What a subscription to clients' metrics says (KIP-714): which metrics, how often, of whom.

Patterns are matched on the event loop against texts that clients choose. So only patterns are taken
whose cost is bounded: no group repeats, few things do, and long texts match nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.cluster.settings import BadValue, ConfigType, Setting, invalid, table
from penstock.model.errors import Reason, Refused

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
# Asks for every metric that a client has.
ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 5 * 60 * 1000
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 60 * 60 * 1000
SUBSCRIPTIONS_MAX = 1_000
# What a pattern may be asked of; each is an attribute of a client.
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
REPEATS_MAX = 3
ATTRIBUTE_LENGTH_MAX = 256


CLIENT_METRICS_SETTINGS = table(
    Setting(
        METRICS,
        ConfigType.LIST,
        "",
        "The metrics to push, by prefixes of their names; * is all of them, and an empty "
        "list none.",
    ),
    Setting(
        INTERVAL_MS,
        ConfigType.INT,
        str(INTERVAL_MS_DEFAULT),
        "How often a client pushes, in milliseconds.",
    ),
    Setting(
        MATCH,
        ConfigType.LIST,
        "",
        "The clients, as attribute=pattern: all patterns must match. An empty "
        "list means every client.",
    ),
)

# Escaped characters and classes: what they hold repeats nothing.
_LITERALS = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"[*+]|\{\d*,")
# Groups that only group are fine; those that look around or back are not.
_SPECIAL_GROUP = re.compile(r"\(\?(?!:)|\\[1-9]")


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    # By attribute.
    patterns: Mapping[str, "re.Pattern[str]"]

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        return all(
            _matches(pattern, attributes.get(name)) for name, pattern in self.patterns.items()
        )


def _matches(pattern: "re.Pattern[str]", text: str | None) -> bool:
    if text is None or len(text) > ATTRIBUTE_LENGTH_MAX:
        return False
    return pattern.fullmatch(text) is not None


def subscription(configs: Mapping[str, str]) -> Subscription:
    """As checked settings say it."""
    rows = CLIENT_METRICS_SETTINGS.items()
    values = {name: configs.get(name, row.default or "") for name, row in rows}
    return Subscription(
        metrics=frozenset(_elements(values[METRICS])),
        interval_ms=int(values[INTERVAL_MS]),
        patterns=_patterns(_elements(values[MATCH])),
    )


def check_client_metrics(name: str, configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a subscription in normal form."""
    if not name:
        raise Refused(Reason.INVALID_REQUEST, "Subscription name can't be empty")
    checked: dict[str, str] = {}
    for key, text in configs.items():
        setting = CLIENT_METRICS_SETTINGS.get(key)
        if setting is None:
            raise Refused(Reason.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        assert text is not None
        try:
            value = setting.normalise(text)
        except BadValue as fault:
            raise Refused(Reason.INVALID_CONFIG, invalid(key, text, str(fault))) from None
        # What comes twice is kept once, as Kafka does.
        is_list = setting.type is ConfigType.LIST
        checked[key] = ",".join(dict.fromkeys(value.split(","))) if is_list else value
    parsed = subscription(checked)
    if not INTERVAL_MS_MIN <= parsed.interval_ms <= INTERVAL_MS_MAX:
        detail = (
            f"Invalid value {parsed.interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )
        raise Refused(Reason.INVALID_REQUEST, detail)
    return checked


def _elements(text: str) -> list[str]:
    return [element for element in text.split(",") if element]


def _patterns(pairs: Sequence[str]) -> dict[str, "re.Pattern[str]"]:
    patterns = {}
    for pair in pairs:
        name, _, text = (part.strip() for part in pair.partition("="))
        if name not in ATTRIBUTES or not text or "=" in text:
            raise Refused(Reason.INVALID_CONFIG, f"Illegal client matching pattern: {pair}")
        patterns[name] = _pattern(pair, text)
    return patterns


def _pattern(pair: str, text: str) -> "re.Pattern[str]":
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise Refused(Reason.INVALID_CONFIG, f"Illegal client matching pattern: {pair}") from None
    bare = _LITERALS.sub("x", text)
    if (
        _REPEATED_GROUP.search(bare)
        or _SPECIAL_GROUP.search(bare)
        or len(_REPEAT.findall(bare)) > REPEATS_MAX
    ):
        detail = f"Illegal client matching pattern: {pair} could take too long to match"
        raise Refused(Reason.INVALID_CONFIG, detail)
    return pattern
