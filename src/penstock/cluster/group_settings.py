"""The settings of consumer groups of the new protocol and of share groups, and their bounds.

A group that sets nothing follows its broker's settings. It may set a number within the bounds that
the broker sets (`group.consumer.min...`, `group.share.max...` and so on). A number from before the
bounds became narrower acts as the nearest one inside them.

Kafka has more settings of groups: those of Kafka Streams, which are not here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.cluster.broker_settings import BROKER_SETTINGS
from penstock.cluster.dead_letter_settings import DEAD_LETTER_GROUP_SETTINGS
from penstock.cluster.queue_settings import QUEUE_SETTINGS, check_backoff
from penstock.cluster.settings import (
    BadValue,
    ConfigType,
    Setting,
    Synonym,
    at_least,
    invalid,
    table,
)
from penstock.cluster.share_settings import MAX_SHARE_SESSIONS, SHARE_GROUP_SETTINGS
from penstock.model.errors import Reason, Refused, StartRefused

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL_MS: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT_MS: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL_MS: Final = "share.heartbeat.interval.ms"
SHARE_GROUP_SIZE: Final = "group.share.max.size"
# Groups with settings of their own. They are part of the metadata, which every node holds.
GROUPS_MAX: Final = 10_000
GROUP_ID_LENGTH_MAX: Final = 1_024


def _of_members(name: str, default: int, low: int, documentation: str) -> Setting:
    return Setting(
        name,
        ConfigType.INT,
        str(default),
        documentation,
        at_least(low),
        synonyms=(Synonym(f"group.{name}"),),
    )


_SILENCE = "How long a member may be silent before the group takes it as gone."
_HEARTBEATS = "How often members send heartbeats."

GROUP_SETTINGS = table(
    _of_members(SESSION_TIMEOUT_MS, 45_000, 1, _SILENCE),
    _of_members(HEARTBEAT_INTERVAL_MS, 5_000, 1, _HEARTBEATS),
    _of_members(
        ASSIGNMENT_INTERVAL_MS,
        1_000,
        0,
        "The time between two new assignments. Kept, but without effect on this broker.",
    )._replace(has_effect=False),
    _of_members(SHARE_SESSION_TIMEOUT_MS, 45_000, 1, _SILENCE),
    _of_members(SHARE_HEARTBEAT_INTERVAL_MS, 5_000, 1, _HEARTBEATS),
    *SHARE_GROUP_SETTINGS,
    *DEAD_LETTER_GROUP_SETTINGS,
    *QUEUE_SETTINGS,
)
# Several heartbeats have to fit into a session.
_SESSIONS: Final = (
    (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS),
    (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS),
)


class _Bounds(NamedTuple):
    """The broker settings that bound a group's."""

    low: str
    high: str


def _bounds(name: str) -> _Bounds:
    kind, _, rest = name.partition(".")
    return _Bounds(f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


_BOUNDS: Final = {
    name: _bounds(name) for name, setting in GROUP_SETTINGS.items() if setting.synonyms
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
    _check_sessions(checked, broker)
    _check_backoff(checked)
    return checked


def _normalised(setting: Setting, text: str) -> str:
    try:
        return setting.normalise(text)
    except BadValue as fault:
        detail = invalid(setting.name, text, str(fault))
        raise Refused(Reason.INVALID_CONFIG, detail) from None


def _check_bounds(checked: Mapping[str, str], broker: Mapping[str, str]) -> None:
    for name, (low, high) in _BOUNDS.items():
        text = checked.get(name)
        if text is None:
            continue
        if int(text) < _of_broker(low, broker):
            raise _refused(f"{name} must be greater than or equal to {low}")
        if int(text) > _of_broker(high, broker):
            raise _refused(f"{name} must be less than or equal to {high}")


def _check_sessions(checked: Mapping[str, str], broker: Mapping[str, str]) -> None:
    for session, heartbeat in _SESSIONS:
        session_ms, heartbeat_ms = (
            int(checked.get(name) or effective_group_setting(name, {}, broker))
            for name in (session, heartbeat)
        )
        if session_ms <= heartbeat_ms:
            raise _refused(f"{session} must be greater than {heartbeat}")


def _check_backoff(checked: Mapping[str, str]) -> None:
    try:
        check_backoff(checked)
    except BadValue as fault:
        raise _refused(str(fault)) from None


def _refused(detail: str) -> Refused:
    return Refused(Reason.INVALID_CONFIG, detail)


def effective_group_setting(
    name: str, configs: Mapping[str, str], broker: Mapping[str, str]
) -> str:
    """The value that acts: the group's own within the broker's bounds, else the broker's."""
    setting = GROUP_SETTINGS[name]
    if not setting.synonyms:
        assert setting.default is not None
        return configs.get(name, setting.default)
    if name not in configs:
        (synonym,) = setting.synonyms
        return str(_of_broker(synonym.name, broker))
    low, high = (_of_broker(bound, broker) for bound in _BOUNDS[name])
    return str(max(low, min(high, int(configs[name]))))


def _of_broker(name: str, broker: Mapping[str, str]) -> int:
    return int(broker.get(name) or BROKER_SETTINGS[name].default or 0)


def check_broker_bounds(broker: Mapping[str, str]) -> None:
    """What the operator says about groups has to fit together, or the node does not start."""
    for name, (low, high) in _BOUNDS.items():
        default = f"group.{name}"
        if _of_broker(high, broker) < _of_broker(low, broker):
            raise StartRefused(f"{high} must be greater than or equal to {low}.")
        if not _of_broker(low, broker) <= _of_broker(default, broker) <= _of_broker(high, broker):
            raise StartRefused(f"{default} must be between {low} and {high}.")
    for session, heartbeat in _SESSIONS:
        if _of_broker(f"group.{session}", broker) <= _of_broker(f"group.{heartbeat}", broker):
            raise StartRefused(f"group.{session} must be greater than group.{heartbeat}.")
    if _of_broker(MAX_SHARE_SESSIONS, broker) < _of_broker(SHARE_GROUP_SIZE, broker):
        detail = f"{MAX_SHARE_SESSIONS} must be greater than or equal to {SHARE_GROUP_SIZE}."
        raise StartRefused(detail)
