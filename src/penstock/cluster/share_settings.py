"""The settings of share groups, and the broker settings behind them, with Kafka's bounds (KIP-932).

How long members may be silent is said where the other settings of membership are.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.cluster.settings import (
    BadValue,
    Check,
    ConfigType,
    Setting,
    Synonym,
    Value,
    at_least,
    between,
    one_of,
)
from penstock.model.durations import duration_ms

BOOLEAN, STRING = ConfigType.BOOLEAN, ConfigType.STRING
INT, SHORT = ConfigType.INT, ConfigType.SHORT

AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
ISOLATION_LEVEL: Final = "share.isolation.level"
RECORD_LOCK_DURATION_MS: Final = "share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
PARTITION_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
RENEW_ACKNOWLEDGE_ENABLE: Final = "share.renew.acknowledge.enable"
SHARE_ASSIGNMENT_INTERVAL_MS: Final = "share.assignment.interval.ms"
MAX_SHARE_SESSIONS: Final = "group.share.max.share.sessions"

_BY_DURATION: Final = "by_duration:"


class StartKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    BY_DURATION = auto()


class StartPosition(NamedTuple):
    """Where a queue starts that has no state yet; `ago_ms` only by duration."""

    kind: StartKind
    ago_ms: int = 0


def start_position(text: str) -> StartPosition:
    """What `share.auto.offset.reset` says; raises BadValue."""
    if text == "earliest":
        return StartPosition(StartKind.EARLIEST)
    if text == "latest":
        return StartPosition(StartKind.LATEST)
    if text.startswith(_BY_DURATION):
        ago_ms = duration_ms(text.removeprefix(_BY_DURATION))
        if ago_ms is not None:
            return StartPosition(StartKind.BY_DURATION, ago_ms)
    raise BadValue(
        f"Invalid value `{text}` for configuration {AUTO_OFFSET_RESET}. The value must be either "
        f"'earliest', 'latest' or of the format '{_BY_DURATION}<PnDTnHnMn.nS>'."
    )


def _check_start(value: Value) -> str | None:
    assert isinstance(value, str)
    start_position(value)
    return None


# Of groups


def _of_group(
    name: str,
    kind: ConfigType,
    default: str | int,
    documentation: str,
    check: Check | None = None,
    *,
    has_effect: bool = True,
) -> Setting:
    # Only numbers have a broker-wide default.
    synonyms = (Synonym(f"group.{name}"),) if kind is INT else ()
    return Setting(
        name, kind, str(default), documentation, check, synonyms=synonyms, has_effect=has_effect
    )


SHARE_GROUP_SETTINGS: Final = (
    _of_group(
        RECORD_LOCK_DURATION_MS,
        INT,
        30_000,
        "How long a member may keep a record before another one gets it.",
        at_least(1_000),
    ),
    _of_group(
        DELIVERY_COUNT_LIMIT,
        INT,
        5,
        "How often a record is delivered before the group gives it up.",
        at_least(2),
    ),
    _of_group(
        PARTITION_MAX_RECORD_LOCKS,
        INT,
        2_000,
        "The most records of a partition that members of the group may have at a time.",
        at_least(100),
    ),
    _of_group(
        AUTO_OFFSET_RESET,
        STRING,
        "latest",
        "Where the group starts in a partition that it has not read yet: earliest, latest, or "
        f"{_BY_DURATION} and a duration in ISO 8601 format before now.",
        _check_start,
    ),
    _of_group(
        ISOLATION_LEVEL,
        STRING,
        "read_uncommitted",
        "Whether the group gets records of transactions that are not committed. Kept, but without "
        "effect on this broker: it has no transactions.",
        one_of("read_committed", "read_uncommitted"),
        has_effect=False,
    ),
    _of_group(
        RENEW_ACKNOWLEDGE_ENABLE,
        BOOLEAN,
        "true",
        "Whether a member may ask for more time with a record that it has.",
    ),
    _of_group(
        SHARE_ASSIGNMENT_INTERVAL_MS,
        INT,
        1_000,
        "The time between two new assignments. Kept, but without effect on this broker.",
        at_least(0),
        has_effect=False,
    ),
)


# Of brokers


def _of_broker(
    name: str,
    default: int,
    documentation: str,
    check: Check | None,
    *,
    kind: ConfigType = INT,
    has_effect: bool = True,
) -> Setting:
    kept = "" if has_effect else " Kept, but without effect on this broker."
    return Setting(name, kind, str(default), documentation + kept, check, has_effect=has_effect)


class _Bounded(NamedTuple):
    """A broker-wide default, and the bounds of what a group may set: each with its own range."""

    name: str
    documentation: str
    default: tuple[int, int, int]
    low: tuple[int, int, int]
    high: tuple[int, int, int]

    def settings(self) -> tuple[Setting, ...]:
        of_group = f"share.{self.name}"
        return (
            self._setting("group.share.", self.documentation, self.default),
            self._setting(
                "group.share.min.", f"The least that a group may set as {of_group}.", self.low
            ),
            self._setting(
                "group.share.max.", f"The most that a group may set as {of_group}.", self.high
            ),
        )

    def _setting(self, prefix: str, documentation: str, row: tuple[int, int, int]) -> Setting:
        default, low, high = row
        return _of_broker(prefix + self.name, default, documentation, between(low, high))


SHARE_BROKER_SETTINGS: Final = (
    *_Bounded(
        "record.lock.duration.ms",
        "How long a member of a share group may keep a record before another one gets it.",
        (30_000, 1_000, 3_600_000),
        (15_000, 1_000, 30_000),
        (60_000, 30_000, 3_600_000),
    ).settings(),
    *_Bounded(
        "delivery.count.limit",
        "How often a record is delivered before a share group gives it up.",
        (5, 2, 10),
        (2, 2, 5),
        (10, 5, 25),
    ).settings(),
    *_Bounded(
        "partition.max.record.locks",
        "The most records of a partition that members of a share group may have at a time.",
        (2_000, 100, 10_000),
        (100, 100, 2_000),
        (4_000, 2_000, 10_000),
    ).settings(),
    _of_broker(
        "group.share.min.assignment.interval.ms",
        0,
        "The least that a group may set as share.assignment.interval.ms.",
        at_least(0),
    ),
    _of_broker(
        "group.share.max.assignment.interval.ms",
        15_000,
        "The most that a group may set as share.assignment.interval.ms.",
        at_least(0),
    ),
    _of_broker(
        MAX_SHARE_SESSIONS,
        2_000,
        "The most share sessions on this broker. A member has one with each broker that it "
        "fetches from.",
        at_least(1),
    ),
    _of_broker(
        "share.fetch.purgatory.purge.interval.requests",
        1_000,
        "About requests that wait.",
        None,
        has_effect=False,
    ),
    _of_broker(
        "share.coordinator.state.topic.num.partitions",
        50,
        "The number of partitions of __share_group_state when it is created.",
        at_least(1),
    ),
    _of_broker(
        "share.coordinator.state.topic.replication.factor",
        3,
        "The replication factor of __share_group_state, which rises to it as brokers join.",
        at_least(1),
        kind=SHORT,
    ),
    _of_broker(
        "share.coordinator.state.topic.segment.bytes",
        100 * 1024 * 1024,
        "The segment size of __share_group_state when it is created.",
        at_least(1),
    ),
    _of_broker(
        "share.coordinator.state.topic.min.isr",
        2,
        "How many replicas must have a change of state. It is always a majority.",
        at_least(1),
        kind=SHORT,
        has_effect=False,
    ),
    _of_broker(
        "share.coordinator.state.topic.compression.codec",
        0,
        "How changes of state are compressed.",
        None,
        has_effect=False,
    ),
    _of_broker(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "How many changes are stored between two snapshots of a share partition.",
        between(0, 500),
    ),
    _of_broker(
        "share.coordinator.write.timeout.ms",
        5_000,
        "How long a change of state may take before the request that made it is refused.",
        at_least(1),
    ),
    _of_broker(
        "share.coordinator.load.buffer.size",
        5 * 1024 * 1024,
        "How much is read at once where state is loaded.",
        at_least(1),
        has_effect=False,
    ),
    _of_broker(
        "share.coordinator.append.linger.ms",
        -1,
        "How long changes of state are gathered before they are written. They are written at once, "
        "and gathered while a write is under way.",
        at_least(-1),
        has_effect=False,
    ),
    _of_broker(
        "share.coordinator.threads",
        1,
        "The threads of a coordinator.",
        at_least(1),
        has_effect=False,
    ),
)
