"""The settings that coordinators act on: the broker's, and a group's own where it has some."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster.coordinator import Cluster
from penstock.cluster.group_settings import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
)
from penstock.groups.settings import GroupSettings, MigrationPolicy
from penstock.model.ids import GroupId
from penstock.model.limits import Limits

# Texts are stored with a 16-bit length in bytes, and a character takes up to four of them.
TEXT_LENGTH_MAX = 8_000


class SettingsOfGroups:
    """Asked at every heartbeat, so what all groups share is made once per change."""

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._made_from: Mapping[str, str] | None = None
        self._shared = GroupSettings()

    def shared(self) -> GroupSettings:
        """Those of a group without settings of its own."""
        if self._made_from is not self._cluster.broker_settings:
            self._made_from = self._cluster.broker_settings
            self._shared = self._make()
        return self._shared

    def of(self, group_id: GroupId) -> GroupSettings:
        shared = self.shared()
        if group_id not in self._cluster.group_configs:
            return shared
        setting = self._cluster.group_setting
        return replace(
            shared,
            consumer_session_timeout_ms=int(setting(group_id, SESSION_TIMEOUT_MS)),
            consumer_heartbeat_interval_ms=int(setting(group_id, HEARTBEAT_INTERVAL_MS)),
            share_session_timeout_ms=int(setting(group_id, SHARE_SESSION_TIMEOUT_MS)),
            share_heartbeat_interval_ms=int(setting(group_id, SHARE_HEARTBEAT_INTERVAL_MS)),
        )

    def _make(self) -> GroupSettings:
        setting = self._cluster.int_setting
        return GroupSettings(
            session_timeout_ms_min=setting("group.min.session.timeout.ms"),
            session_timeout_ms_max=setting("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=setting("group.initial.rebalance.delay.ms"),
            members_max=min(setting("group.max.size"), self._limits.group_members_max),
            offset_metadata_length_max=min(setting("offset.metadata.max.bytes"), TEXT_LENGTH_MAX),
            offsets_retention_ms=setting("offsets.retention.minutes") * 60_000,
            consumer_session_timeout_ms=setting("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=setting("group.consumer.heartbeat.interval.ms"),
            consumer_group_size_max=min(
                setting("group.consumer.max.size"), self._limits.consumer_group_members_max
            ),
            consumer_assignors=tuple(
                self._cluster.broker_setting("group.consumer.assignors").split(",")
            ),
            consumer_regex_refresh_interval_ms=setting("group.consumer.regex.refresh.interval.ms"),
            consumer_migration=MigrationPolicy(
                self._cluster.broker_setting("group.consumer.migration.policy").lower()
            ),
            share_session_timeout_ms=setting("group.share.session.timeout.ms"),
            share_heartbeat_interval_ms=setting("group.share.heartbeat.interval.ms"),
            share_group_size_max=min(
                setting("group.share.max.size"), self._limits.group_members_max
            ),
            share_assignors=tuple(self._cluster.broker_setting("group.share.assignors").split(",")),
        )
