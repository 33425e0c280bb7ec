"""The settings that queues act on: the broker's, and a group's own where it has some."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster.coordinator import Cluster
from penstock.cluster.dead_letter_settings import COPY_RECORD_ENABLE, TOPIC_NAME
from penstock.cluster.share_settings import (
    AUTO_OFFSET_RESET,
    DELIVERY_COUNT_LIMIT,
    PARTITION_MAX_RECORD_LOCKS,
    RECORD_LOCK_DURATION_MS,
    RENEW_ACKNOWLEDGE_ENABLE,
    StartPosition,
    start_position,
)
from penstock.model.ids import GroupId
from penstock.queues.commands import ShareSettings
from penstock.queues.layout import QueueKey


class SettingsOfQueues:
    """Asked for every request about records, so what all groups share is made once per change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made_from: Mapping[str, str] | None = None
        self._shared = ShareSettings()

    def of(self, group_id: GroupId) -> ShareSettings:
        if group_id in self._cluster.group_configs:
            return self._make(group_id)
        if self._made_from is not self._cluster.broker_settings:
            self._made_from = self._cluster.broker_settings
            self._shared = self._make(group_id)
        return self._shared

    def of_queue(self, key: QueueKey) -> ShareSettings:
        """What a group gives up of its own dead letters does not become letters again."""
        settings = self.of(key.group_id)
        if settings.has_dead_letters and self._is_letters(key):
            return replace(settings, has_dead_letters=False)
        return settings

    def _is_letters(self, key: QueueKey) -> bool:
        topic = self._cluster.topic_by_id(key.topic_id)
        return topic is not None and topic.name == self.letters_topic_of(key.group_id)

    def letters_topic_of(self, group_id: GroupId) -> str:
        """Empty if the group has none."""
        return self._cluster.group_setting(group_id, TOPIC_NAME)

    def copies_records(self, group_id: GroupId) -> bool:
        return self._cluster.group_setting(group_id, COPY_RECORD_ENABLE) == "true"

    def start_of(self, group_id: GroupId) -> StartPosition:
        """Where the group starts in a partition that it has not read yet."""
        return start_position(self._cluster.group_setting(group_id, AUTO_OFFSET_RESET))

    def _make(self, group_id: GroupId) -> ShareSettings:
        setting = self._cluster.group_setting
        return ShareSettings(
            lease_ms=int(setting(group_id, RECORD_LOCK_DURATION_MS)),
            delivery_attempts_max=int(setting(group_id, DELIVERY_COUNT_LIMIT)),
            leased_max=int(setting(group_id, PARTITION_MAX_RECORD_LOCKS)),
            is_renewable=setting(group_id, RENEW_ACKNOWLEDGE_ENABLE) == "true",
            has_dead_letters=bool(setting(group_id, TOPIC_NAME)),
        )
