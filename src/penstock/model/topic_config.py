"""A topic's effective settings, typed: what storage, replication and produce act on."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class TimestampType(Enum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class FlushPolicy(Enum):
    """When a record counts as safe; the looser ones say in their names what they risk."""

    BEFORE_ACK = "before-ack"
    # Acknowledged once written to the page cache, synced every `flush_ms`.
    INTERVAL_UNSAFE = "interval-unsafe"
    # Acknowledged once written to the page cache, synced when the operating system likes.
    OS_UNSAFE = "os-unsafe"


class SubjectNames(Enum):
    """Under which subject the schema of a key or a value must be registered, by the names that
    Confluent's serialisers and brokers use for it."""

    TOPIC = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
    RECORD = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    TOPIC_RECORD = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"


class SchemaValidation(NamedTuple):
    """What a topic asks of the schemas of its records; None: anything is taken."""

    key: SubjectNames | None = None
    value: SubjectNames | None = None


FOREVER = -1


class ThrottledReplicas(NamedTuple):
    """The replicas of a topic whose traffic is bounded while they catch up."""

    are_all: bool = False
    # Pairs of partition and broker.
    listed: frozenset[tuple[int, int]] = frozenset()

    def has(self, partition: int, broker: int) -> bool:
        return self.are_all or (partition, broker) in self.listed

    def has_any(self, partition: int) -> bool:
        return self.are_all or any(each == partition for each, _ in self.listed)


NOBODY = ThrottledReplicas()
EVERYBODY = ThrottledReplicas(are_all=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Defaults are Kafka's, except that the flush policy is safe."""

    cleanup_delete: bool = True
    cleanup_compact: bool = False
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = FOREVER
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    # "producer" keeps what the producer chose; otherwise a codec's name.
    compression_type: str = "producer"
    min_insync_replicas: int = 1
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    flush_policy: FlushPolicy = FlushPolicy.BEFORE_ACK
    flush_ms: int = 1_000
    # Leaders whose sending, and followers whose receiving is bounded.
    throttled_leaders: ThrottledReplicas = NOBODY
    throttled_followers: ThrottledReplicas = NOBODY
    # None for nearly all topics: then nobody looks into their records.
    schema_validation: SchemaValidation | None = None

    @property
    def segment_age_ms_max(self) -> int:
        """When a segment is closed at the latest: only then can it be compacted (KIP-354)."""
        if self.cleanup_compact:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
