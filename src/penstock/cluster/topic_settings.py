"""Every setting a topic can have, by Kafka's name, with the broker settings that give its default.

Settings without effect on this broker are accepted and kept, since tools that set them expect to
read them back; their documentation says so.
"""

from penstock.cluster.dead_letter_settings import DEAD_LETTER_TOPIC_SETTING
from penstock.cluster.settings import (
    LONG_MAX,
    Check,
    ConfigType,
    Setting,
    Synonym,
    at_least,
    between,
    level_or_default,
    one_of,
    some_of,
    table,
    throttled_replicas,
)
from penstock.model.topic_config import SubjectNames

BOOLEAN, STRING, LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
INT, LONG, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * 24 * HOUR_MS

THROTTLED_LEADERS = "leader.replication.throttled.replicas"
THROTTLED_FOLLOWERS = "follower.replication.throttled.replicas"
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
FLUSH_POLICIES = ("before-ack", "interval-unsafe", "os-unsafe")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
# Confluent's names, so that scripts for their brokers work here.
KEY_VALIDATION = "confluent.key.schema.validation"
VALUE_VALIDATION = "confluent.value.schema.validation"
KEY_SUBJECTS = "confluent.key.subject.name.strategy"
VALUE_SUBJECTS = "confluent.value.subject.name.strategy"
SUBJECT_NAMES = tuple(each.value for each in SubjectNames)


def _row(
    name: str,
    kind: ConfigType,
    default: str | int | float,
    documentation: str,
    *synonyms: str | Synonym,
    check: Check | None = None,
) -> Setting:
    return Setting(
        name=name,
        type=kind,
        default=str(default),
        documentation=documentation,
        check=check,
        synonyms=tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms),
    )


def _kept(
    name: str,
    kind: ConfigType,
    default: str | int,
    documentation: str,
    *synonyms: str | Synonym,
    check: Check | None = None,
) -> Setting:
    return Setting(
        name=name,
        type=kind,
        default=str(default),
        documentation=f"{documentation} Kept, but without effect on this broker.",
        check=check,
        has_effect=False,
        synonyms=tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms),
    )


_RETENTION = (
    _row(
        "cleanup.policy",
        LIST,
        "delete",
        "What happens to old records: 'delete' drops them by age and size, 'compact' keeps the "
        "last record of each key, both do both; empty keeps everything.",
        "log.cleanup.policy",
        check=some_of(*CLEANUP_POLICIES),
    ),
    _row(
        "retention.ms",
        LONG,
        WEEK_MS,
        "How long records are kept under the 'delete' policy, in milliseconds; -1 is forever.",
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
        check=at_least(-1),
    ),
    _row(
        "retention.bytes",
        LONG,
        -1,
        "How large a partition may grow before its oldest segments are deleted; -1 is no limit.",
        "log.retention.bytes",
    ),
    _row(
        "delete.retention.ms",
        LONG,
        24 * HOUR_MS,
        "How long compaction keeps a tombstone, so that slow readers still see the deletion.",
        "log.cleaner.delete.retention.ms",
        check=at_least(0),
    ),
    _row(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        "The share of a log that must be uncompacted before it is compacted again.",
        "log.cleaner.min.cleanable.ratio",
        check=between(0, 1),
    ),
    _row(
        "min.compaction.lag.ms",
        LONG,
        0,
        "The least time that a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
        check=at_least(0),
    ),
    _row(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        "The most time that a record may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
        check=at_least(1),
    ),
)

_SEGMENTS = (
    _row(
        "segment.bytes",
        INT,
        1024 * 1024 * 1024,
        "The size at which a segment is closed and a new one started.",
        "log.segment.bytes",
        check=at_least(14),
    ),
    _row(
        "segment.ms",
        LONG,
        WEEK_MS,
        "The age at which a segment is closed even if it is not full.",
        "log.roll.ms",
        Synonym("log.roll.hours", HOUR_MS),
        check=at_least(1),
    ),
    _row(
        "index.interval.bytes",
        INT,
        4096,
        "How many bytes of records are between two entries of the sparse offset index.",
        "log.index.interval.bytes",
        check=at_least(0),
    ),
    _kept(
        "segment.jitter.ms",
        LONG,
        0,
        "Random time taken off segment.ms so that segments do not all close at once.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS),
        check=at_least(0),
    ),
    _kept(
        "segment.index.bytes",
        INT,
        10 * 1024 * 1024,
        "The size that is reserved for a segment's index.",
        "log.index.size.max.bytes",
        check=at_least(4),
    ),
    _kept(
        "file.delete.delay.ms",
        LONG,
        60_000,
        "The time between dropping a segment and deleting its file.",
        "log.segment.delete.delay.ms",
        check=at_least(0),
    ),
    _kept(
        "preallocate", BOOLEAN, "false", "Reserve a new segment's disk space.", "log.preallocate"
    ),
)

_FLUSHING = (
    _row(
        "penstock.flush.policy",
        STRING,
        "before-ack",
        "When a record counts as safe: 'before-ack' syncs it to disk before it is acknowledged; "
        "'interval-unsafe' acknowledges first and syncs every flush.ms; 'os-unsafe' leaves the "
        "sync to the operating system. A crash of the machine loses what was not synced.",
        "penstock.flush.policy",
        check=one_of(*FLUSH_POLICIES),
    ),
    _row(
        "flush.ms",
        LONG,
        1_000,
        "The time between two syncs under the flush policy 'interval-unsafe'.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        check=at_least(0),
    ),
    _kept(
        "flush.messages",
        LONG,
        LONG_MAX,
        "How many records may be unsynced; see penstock.flush.policy.",
        "log.flush.interval.messages",
        check=at_least(1),
    ),
)

_MESSAGES = (
    _row(
        "max.message.bytes",
        INT,
        1024 * 1024 + 12,
        "The largest record batch that is accepted, after compression; never more than 112 MiB,"
        " whatever the setting says.",
        "message.max.bytes",
        check=at_least(0),
    ),
    _row(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether a record carries the producer's time or the time of its arrival.",
        "log.message.timestamp.type",
        check=one_of(*TIMESTAMP_TYPES),
    ),
    _row(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "How far a producer's timestamp may be in the past.",
        "log.message.timestamp.before.max.ms",
        check=at_least(0),
    ),
    _row(
        "message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "How far a producer's timestamp may be in the future.",
        "log.message.timestamp.after.max.ms",
        check=at_least(0),
    ),
    _row(
        "compression.type",
        STRING,
        "producer",
        "The codec that records are stored in; 'producer' keeps what the producer chose.",
        "compression.type",
        check=one_of(*CODECS),
    ),
    _kept(
        "compression.gzip.level",
        INT,
        -1,
        "The level of gzip when the broker compresses.",
        "compression.gzip.level",
        check=level_or_default(1, 9, -1),
    ),
    _kept(
        "compression.lz4.level",
        INT,
        9,
        "The level of lz4 when the broker compresses.",
        "compression.lz4.level",
        check=between(1, 17),
    ),
    _kept(
        "compression.zstd.level",
        INT,
        3,
        "The level of zstd when the broker compresses.",
        "compression.zstd.level",
        check=between(-131_072, 22),
    ),
)

_SCHEMAS = (
    _row(
        VALUE_VALIDATION,
        BOOLEAN,
        "false",
        "Refuse records whose value does not begin with the id of a schema that the registry has "
        "under the subject of this topic. Records without a value are taken.",
    ),
    _row(
        VALUE_SUBJECTS,
        STRING,
        SubjectNames.TOPIC.value,
        f"Under which subject the schema of a value must be, if {VALUE_VALIDATION} is on: that of "
        "the topic (<topic>-value), of the record's name, or of both (<topic>-<record>).",
        check=one_of(*SUBJECT_NAMES),
    ),
    _row(
        KEY_VALIDATION,
        BOOLEAN,
        "false",
        "As for values: refuse records by the schema of their key. Records without a key are "
        "taken.",
    ),
    _row(
        KEY_SUBJECTS,
        STRING,
        SubjectNames.TOPIC.value,
        f"Under which subject the schema of a key must be, if {KEY_VALIDATION} is on.",
        check=one_of(*SUBJECT_NAMES),
    ),
)

_REPLICATION = (
    _row(
        "min.insync.replicas",
        INT,
        1,
        "How many replicas, or all if there are fewer, must hold a record before a producer with"
        " acks=all gets its answer.",
        "min.insync.replicas",
        check=at_least(1),
    ),
    _kept(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Let a replica lead that may lack acknowledged records; this broker never does that.",
        "unclean.leader.election.enable",
    ),
    _row(
        THROTTLED_LEADERS,
        LIST,
        "",
        "Leaders that send replicas which catch up no more than leader.replication.throttled.rate "
        "allows: '*' for all, or partition:broker,...",
        check=throttled_replicas(THROTTLED_LEADERS),
    ),
    _row(
        THROTTLED_FOLLOWERS,
        LIST,
        "",
        "Replicas that receive no more than follower.replication.throttled.rate allows while they "
        "catch up: '*' for all, or partition:broker,...",
        check=throttled_replicas(THROTTLED_FOLLOWERS),
    ),
)

_REMOTE = (
    _kept("remote.storage.enable", BOOLEAN, "false", "Keep old segments in remote storage."),
    _kept("remote.log.copy.disable", BOOLEAN, "false", "Make the remote part read-only."),
    _kept(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "Delete the remote part when remote storage is switched off.",
    ),
    _kept(
        "local.retention.ms",
        LONG,
        -2,
        "How long segments stay local under remote storage; -2 is retention.ms.",
        "log.local.retention.ms",
        check=at_least(-2),
    ),
    _kept(
        "local.retention.bytes",
        LONG,
        -2,
        "How much stays local under remote storage; -2 is retention.bytes.",
        "log.local.retention.bytes",
        check=at_least(-2),
    ),
)

TOPIC_SETTINGS = table(
    *_RETENTION,
    *_SEGMENTS,
    *_FLUSHING,
    *_MESSAGES,
    *_SCHEMAS,
    *_REPLICATION,
    *_REMOTE,
    DEAD_LETTER_TOPIC_SETTING,
)
