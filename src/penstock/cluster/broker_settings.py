"""Every setting a broker can have, by Kafka's name, with our defaults.

Dynamic settings can be changed while the broker runs and act at once; all others are read at
start. The broker-wide defaults of topic settings are derived from `topic_settings`, so that the
two tables can't drift apart.
"""

from collections.abc import Iterator

from penstock.cluster.brokers import DRAINED
from penstock.cluster.dead_letter_settings import DEAD_LETTER_BROKER_SETTINGS
from penstock.cluster.foreign_settings import FOREIGN_SETTINGS
from penstock.cluster.settings import (
    INT_MAX,
    Check,
    ConfigType,
    Setting,
    Value,
    at_least,
    between,
    in_larger_unit,
    table,
)
from penstock.cluster.share_settings import SHARE_BROKER_SETTINGS
from penstock.cluster.topic_settings import HOUR_MS, TOPIC_SETTINGS

BOOLEAN, STRING, LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
INT, LONG, SHORT, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE

DAY_MS = 24 * HOUR_MS
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
# The one value of replica.selector.class that there is.
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _check_selector(value: Value) -> str | None:
    return None if value in ("", RACK_AWARE_SELECTOR) else f"It can only be {RACK_AWARE_SELECTOR}"


MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


def _check_policy(value: Value) -> str | None:
    if isinstance(value, str) and value.lower() in MIGRATION_POLICIES:
        return None
    choices = ", ".join(policy.upper() for policy in MIGRATION_POLICIES)
    return f"String must be one of (case insensitive): {choices}"


def _check_assignors(value: Value) -> str | None:
    return None if value else "List must not be empty"


def _row(
    name: str,
    kind: ConfigType,
    default: str | int | float,
    documentation: str,
    check: Check | None = None,
    *,
    is_dynamic: bool = False,
) -> Setting:
    return Setting(
        name=name,
        type=kind,
        default=str(default),
        documentation=documentation,
        check=check,
        is_dynamic=is_dynamic,
    )


def _kept(
    name: str,
    kind: ConfigType,
    default: str | int | float,
    documentation: str,
    check: Check | None = None,
) -> Setting:
    """Kafka lets all of them change while a broker runs."""
    return Setting(
        name=name,
        type=kind,
        default=str(default),
        documentation=f"{documentation} Kept, but without effect on this broker.",
        check=check,
        has_effect=False,
        is_dynamic=True,
    )


def _throttle(name: str, documentation: str, *, has_effect: bool = True) -> Setting:
    return Setting(
        name=name,
        type=LONG,
        default=None,
        documentation=documentation,
        check=at_least(0),
        has_effect=has_effect,
        is_dynamic=True,
        is_dynamic_only=True,
    )


# Where clients find a node's HTTP door.
HTTP_LISTENER = "penstock.http.listener"


def _own(name: str, kind: ConfigType, flag: str, documentation: str) -> Setting:
    return Setting(name=name, type=kind, default=None, documentation=documentation, flag=flag)


def _topic_defaults() -> Iterator[Setting]:
    """For each topic setting its broker-wide synonyms; only the last of them has a default."""
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.synonyms:
            is_last = synonym is setting.synonyms[-1]
            assert setting.default is not None
            default = setting.default
            if synonym.factor != 1:
                default = str(int(default) // synonym.factor)
            yield Setting(
                name=synonym.name,
                type=INT if synonym.factor != 1 else setting.type,
                default=default if is_last else None,
                documentation=f"The broker-wide default of {setting.name}. {setting.documentation}",
                check=in_larger_unit(setting.check, synonym.factor),
                has_effect=setting.has_effect,
                is_dynamic=True,
            )


_NODE = (
    _own("broker.id", INT, "--node", "The number of this broker."),
    _own("node.id", INT, "--node", "The number of this broker."),
    _own("listeners", STRING, "--kafka", "Where the Kafka listener is bound."),
    _own("advertised.listeners", STRING, "--advertise", "The address that clients connect to."),
    _own(HTTP_LISTENER, STRING, "--http", "Where the HTTP door is bound."),
    _own("log.dirs", STRING, "--data-dir", "The directory that holds all data of this broker."),
    _row("broker.rack", STRING, "", "The rack or zone of this broker, as clients see it."),
    _row(
        DRAINED,
        BOOLEAN,
        "false",
        "Give this broker no new replicas, and no vote on the cluster's metadata.",
        is_dynamic=True,
    ),
)

_TOPICS = (
    _row(
        "num.partitions",
        INT,
        1,
        "The number of partitions of a topic that is created without one.",
        at_least(1),
    ),
    _row(
        "default.replication.factor",
        INT,
        3,
        "The replication factor of a topic that is created without one, or the number of brokers "
        "when there are fewer.",
        at_least(1),
    ),
    _row(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Create a topic when a client that allows it first asks for its metadata.",
    ),
    _row("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted at all."),
    _row(
        "max.request.partition.size.limit",
        INT,
        2000,
        "The most partitions that one DescribeTopicPartitions answer holds.",
        at_least(1),
    ),
)

_UPKEEP = (
    _row(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        "The time between two rounds of retention.",
        at_least(1),
    ),
    _row("log.cleaner.enable", BOOLEAN, "true", "Whether compacted topics are compacted at all."),
    _kept(
        "log.cleaner.threads",
        INT,
        1,
        "The number of threads that compact.",
        at_least(0),
    ),
    _kept(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 * 1024 * 1024,
        "The memory for the key map of compaction.",
    ),
    _row(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "The time between two looks for logs to compact, and so about how late compaction may be.",
        at_least(0),
        is_dynamic=True,
    ),
    _row(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "How long a partition remembers an idle producer's sequence numbers.",
        at_least(1),
        is_dynamic=True,
    ),
)

_NETWORK = (
    _row(
        "socket.request.max.bytes",
        INT,
        100 * 1024 * 1024,
        "The largest request that is read; the broker closes the connection on a larger one.",
        at_least(1),
    ),
    _row(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "A connection that is silent for this long is closed.",
        at_least(1),
    ),
    _row("max.connections", INT, 10_000, "The most connections at once.", at_least(1)),
    _row(
        "fetch.max.bytes",
        INT,
        55 * 1024 * 1024,
        "The most record bytes in one Fetch answer, beyond the first batch.",
        at_least(1024),
    ),
    _row(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "The most fetch sessions that are remembered.",
        at_least(0),
    ),
    _row(
        "replica.selector.class",
        STRING,
        "",
        f"{RACK_AWARE_SELECTOR} sends consumers that set client.rack to a follower in that rack; "
        "when it is empty, they all read from leaders.",
        _check_selector,
    ),
    _kept("max.connections.per.ip", INT, INT_MAX, "The most connections from one address."),
    _kept("num.network.threads", INT, 1, "The number of network threads.", at_least(1)),
    _kept("num.io.threads", INT, 1, "The number of request threads.", at_least(1)),
)

_THROTTLES = (
    _throttle(
        LEADER_RATE,
        "The most bytes per second that leaders on this broker send to replicas which catch up, "
        "where leader.replication.throttled.replicas of the topic lists the leader; no limit "
        "unless it is set.",
    ),
    _throttle(
        FOLLOWER_RATE,
        "The most bytes per second that replicas on this broker receive while they catch up, "
        "where follower.replication.throttled.replicas of the topic lists them; no limit "
        "unless it is set.",
    ),
    _throttle(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "The most bytes per second that move from one log directory to another. Kept, but without "
        "effect on this broker.",
        has_effect=False,
    ),
)

_GROUPS = (
    _row(
        "group.initial.rebalance.delay.ms",
        INT,
        100,
        "How long the first rebalance of an empty group waits for more members.",
        at_least(0),
    ),
    _row(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session timeout that a member may ask for.",
        at_least(1),
    ),
    _row(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        "The longest session timeout that a member may ask for.",
        at_least(1),
    ),
    _row(
        "telemetry.max.bytes",
        INT,
        1024 * 1024,
        "The most bytes of metrics that a client may push at once, packed or unpacked.",
        at_least(1),
    ),
    _row("group.max.size", INT, 1_000, "The most members of one group.", at_least(1)),
    _row(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "The longest metadata string of a committed offset.",
        at_least(0),
    ),
    _row(
        "offsets.retention.minutes",
        INT,
        7 * 24 * 60,
        "How long an empty group keeps its committed offsets.",
        at_least(1),
    ),
    _row(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "The time between two looks for expired offsets.",
        at_least(1),
    ),
    _row(
        "offsets.topic.num.partitions",
        INT,
        8,
        "The number of partitions of __consumer_offsets when it is created.",
        at_least(1),
    ),
    _row(
        "offsets.topic.segment.bytes",
        INT,
        100 * 1024 * 1024,
        "The segment size of __consumer_offsets when it is created.",
        at_least(1024),
    ),
    _row(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "The replication factor of __consumer_offsets, which rises to it as brokers join.",
        at_least(1),
    ),
)

_CONSUMER_GROUPS = (
    _row(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "How long a member of a group of the new protocol may be silent.",
        at_least(1),
    ),
    _row(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The least that a group may set as consumer.session.timeout.ms.",
        at_least(1),
    ),
    _row(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "The most that a group may set as consumer.session.timeout.ms.",
        at_least(1),
    ),
    _row(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a group of the new protocol send heartbeats.",
        at_least(1),
    ),
    _row(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The least that a group may set as consumer.heartbeat.interval.ms.",
        at_least(1),
    ),
    _row(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The most that a group may set as consumer.heartbeat.interval.ms.",
        at_least(1),
    ),
    _row(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The least that a group may set as consumer.assignment.interval.ms.",
        at_least(0),
    ),
    _row(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The most that a group may set as consumer.assignment.interval.ms.",
        at_least(0),
    ),
    _row(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        "The most members of one group of the new protocol.",
        at_least(1),
    ),
    _row(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        "The assignors that members of the new protocol may choose from. The first is that of "
        "members which choose none. Each is built in or an entry point of an installed package.",
        _check_assignors,
    ),
    _row(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether groups may change between the classic and the new protocol while they have "
        "members: upgrade allows the way to the new one, downgrade the way back, bidirectional "
        "both, disabled neither.",
        _check_policy,
    ),
    _row(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        600_000,
        "How long after the last time the expressions that members subscribe with are compared "
        "with the topics again. They also are whenever topics change.",
        at_least(10_000),
    ),
)


def _for_share_members(
    name: str, default: int, low: int, high: int, what: str
) -> tuple[Setting, ...]:
    """A default for share groups, and the bounds of what a group may set."""
    of_group = f"share.{name}"
    return (
        _row(f"group.share.{name}", INT, default, what, at_least(1)),
        _row(
            f"group.share.min.{name}",
            INT,
            low,
            f"The least that a group may set as {of_group}.",
            at_least(1),
        ),
        _row(
            f"group.share.max.{name}",
            INT,
            high,
            f"The most that a group may set as {of_group}.",
            at_least(1),
        ),
    )


_SHARE_GROUPS = (
    *_for_share_members(
        "session.timeout.ms",
        45_000,
        45_000,
        60_000,
        "How long a member of a share group may be silent.",
    ),
    *_for_share_members(
        "heartbeat.interval.ms",
        5_000,
        5_000,
        15_000,
        "How often members of a share group send heartbeats.",
    ),
    _row(
        "group.share.max.size",
        INT,
        200,
        "The most members of one share group.",
        between(1, 1_000),
    ),
    _row(
        "group.share.assignors",
        LIST,
        "simple",
        "The assignor of share groups. There is just this one.",
        _check_assignors,
    ),
)

BROKER_SETTINGS = table(
    *_NODE,
    *_TOPICS,
    *_UPKEEP,
    *_NETWORK,
    *_THROTTLES,
    *_GROUPS,
    *_CONSUMER_GROUPS,
    *_SHARE_GROUPS,
    *SHARE_BROKER_SETTINGS,
    *DEAD_LETTER_BROKER_SETTINGS,
    *_topic_defaults(),
    *FOREIGN_SETTINGS,
)
