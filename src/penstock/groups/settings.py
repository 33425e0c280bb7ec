"""The settings of a node that its group coordinators act on."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.groups.modern_records import GroupKind


class MigrationPolicy(Enum):
    """Whether a group with members may move to the new protocol (KIP-848), and back."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class KindSettings(NamedTuple):
    """Those that groups of a kind have under names of their own."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    members_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Names follow ours (units and qualifiers last); Kafka's name stands beside each."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    # group.initial.rebalance.delay.ms. Kafka waits 3,000 ms before the first generation, so that
    # consumers started together land in one. 100 ms is enough for those of one process or test,
    # and it is what the first consumer on a laptop waits at most when it is alone.
    initial_rebalance_delay_ms: int = 100
    members_max: int = 1_000  # group.max.size, and never above the limit of the process
    # A new member can't heartbeat before it knows its id, so its join is bounded by this instead.
    new_member_join_timeout_ms: int = 300_000
    # All that one member may send as its protocols; it is kept in memory and in each generation.
    member_metadata_bytes_max: int = 4 * 1024 * 1024
    # One generation is one record, with all that its members say and all that they are assigned.
    generation_bytes_max: int = 16 * 1024 * 1024
    # All offsets of one commit, as records.
    commit_bytes_max: int = 16 * 1024 * 1024
    offset_metadata_length_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000  # offsets.retention.minutes
    # Groups whose partitions the broker assigns (KIP-848).
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    # group.consumer.max.size, and never above the limit of the process
    consumer_group_size_max: int = 10_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    consumer_regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    # group.consumer.migration.policy
    consumer_migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # Share groups (KIP-932).
    share_session_timeout_ms: int = 45_000  # group.share.session.timeout.ms
    share_heartbeat_interval_ms: int = 5_000  # group.share.heartbeat.interval.ms
    share_group_size_max: int = 200  # group.share.max.size
    share_assignors: tuple[str, ...] = ("simple",)  # group.share.assignors

    def of_kind(self, kind: GroupKind) -> KindSettings:
        if kind is GroupKind.SHARE:
            return KindSettings(
                self.share_session_timeout_ms,
                self.share_heartbeat_interval_ms,
                self.share_group_size_max,
            )
        return KindSettings(
            self.consumer_session_timeout_ms,
            self.consumer_heartbeat_interval_ms,
            self.consumer_group_size_max,
        )
