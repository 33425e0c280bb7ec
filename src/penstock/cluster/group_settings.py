"""The settings of a consumer group of the new protocol, and the broker settings behind them.

A group that sets nothing follows its coordinator's broker settings. It may set a value within the
bounds that the broker sets (`group.consumer.min...` and `group.consumer.max...`). A value from
before the bounds became narrower acts as the nearest one inside them.

Kafka has more settings of groups: those of share groups and of Kafka Streams, which are not here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.cluster.broker_settings import BROKER_SETTINGS
from penstock.cluster.settings import BadValue, ConfigType, Setting, Synonym, at_least, table
from penstock.model.errors import Reason, Refused, StartRefused

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL_MS: Final = "consumer.assignment.interval.ms"
# Groups with settings of their own. They are part of the metadata, which every node holds.
GROUPS_MAX: Final = 10_000
GROUP_ID_LENGTH_MAX: Final = 1_024


def _of_consumers(name: str, default: int, low: int, documentation: str) -> Setting:
    return Setting(
        name,
        ConfigType.INT,
        str(default),
        documentation,
        at_least(low),
        synonyms=(Synonym(f"group.{name}"),),
    )


GROUP_SETTINGS = table(
    _of_consumers(
        SESSION_TIMEOUT_MS,
        45_000,
        1,
        "How long a member may be silent before the group takes it as gone.",
    ),
    _of_consumers(
        HEARTBEAT_INTERVAL_MS,
        5_000,
        1,
        "How often members send heartbeats.",
    ),
    _of_consumers(
        ASSIGNMENT_INTERVAL_MS,
        1_000,
        0,
        "The time between two new assignments. Kept, but without effect on this broker.",
    )._replace(has_effect=False),
)


class _Bounds(NamedTuple):
    """The broker settings that bound a group's."""

    low: str
    high: str


_BOUNDS: Final = {
    name: _Bounds(
        name.replace("consumer.", "group.consumer.min."),
        name.replace("consumer.", "group.consumer.max."),
    )
    for name in GROUP_SETTINGS
}


def check_group_configs(
    group: str, configs: Mapping[str, str | None], broker: Mapping[str, str]
) -> dict[str, str]:
    """The settings of a group in normal form; `broker` are those that act on its brokers."""
    if not group:
        raise Refused(Reason.INVALID_REQUEST, "Group name can't be empty")
    if len(group) > GROUP_ID_LENGTH_MAX:
        detail = f"A group with settings has a name of {GROUP_ID_LENGTH_MAX} characters at most."
        raise Refused(Reason.INVALID_REQUEST, detail)
    checked: dict[str, str] = {}
    for name, text in configs.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise Refused(Reason.INVALID_CONFIG, f"Unknown group config name: {name}")
        assert text is not None
        checked[name] = _normalised(setting, text)
    _check_bounds(checked, broker)
    _check_session(checked, broker)
    return checked


def _normalised(setting: Setting, text: str) -> str:
    try:
        return setting.normalise(text)
    except BadValue as fault:
        detail = f"Invalid value {text} for configuration {setting.name}: {fault}"
        raise Refused(Reason.INVALID_CONFIG, detail) from None


def _check_bounds(checked: Mapping[str, str], broker: Mapping[str, str]) -> None:
    for name, text in checked.items():
        low, high = _BOUNDS[name]
        if int(text) < _of_broker(low, broker):
            raise _refused(f"{name} must be greater than or equal to {low}")
        if int(text) > _of_broker(high, broker):
            raise _refused(f"{name} must be less than or equal to {high}")


def _check_session(checked: Mapping[str, str], broker: Mapping[str, str]) -> None:
    session, heartbeat = (
        int(checked.get(name) or effective_group_setting(name, {}, broker))
        for name in (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
    )
    if session <= heartbeat:
        raise _refused(f"{SESSION_TIMEOUT_MS} must be greater than {HEARTBEAT_INTERVAL_MS}")


def _refused(detail: str) -> Refused:
    return Refused(Reason.INVALID_CONFIG, detail)


def effective_group_setting(
    name: str, configs: Mapping[str, str], broker: Mapping[str, str]
) -> str:
    """The value that acts: the group's own within the broker's bounds, else the broker's."""
    if name not in configs:
        (synonym,) = GROUP_SETTINGS[name].synonyms
        return str(_of_broker(synonym.name, broker))
    low, high = (_of_broker(bound, broker) for bound in _BOUNDS[name])
    return str(max(low, min(high, int(configs[name]))))


def _of_broker(name: str, broker: Mapping[str, str]) -> int:
    return int(broker.get(name) or BROKER_SETTINGS[name].default or 0)


def check_consumer_bounds(broker: Mapping[str, str]) -> None:
    """What the operator says about groups has to fit together, or the node does not start."""
    for name, (low, high) in _BOUNDS.items():
        default = f"group.{name}"
        if _of_broker(high, broker) < _of_broker(low, broker):
            raise StartRefused(f"{high} must be greater than or equal to {low}.")
        if not _of_broker(low, broker) <= _of_broker(default, broker) <= _of_broker(high, broker):
            raise StartRefused(f"{default} must be between {low} and {high}.")
    session, heartbeat = f"group.{SESSION_TIMEOUT_MS}", f"group.{HEARTBEAT_INTERVAL_MS}"
    if _of_broker(session, broker) <= _of_broker(heartbeat, broker):
        raise StartRefused(f"{session} must be greater than {heartbeat}.")
