"""The settings that queues act on: the broker's, and a group's own where it has some."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster.coordinator import Cluster
from penstock.cluster.dead_letter_settings import COPY_RECORD_ENABLE, TOPIC_NAME
from penstock.cluster.group_settings import GROUPS_MAX
from penstock.cluster.queue_settings import (
    CONSUMER_MAX_RECORD_LOCKS,
    DELAY_ENABLE,
    EXPIRY_DEAD_LETTERS_ENABLE,
    EXPIRY_ENABLE,
    EXPIRY_MS,
    GROUP_MAX_RECORD_LOCKS,
    KEY_ORDER_ENABLE,
    PAUSED_TOPICS,
    RETRY_BACKOFF_JITTER_PERCENT,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
)
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
from penstock.queues.backoff import Backoff
from penstock.queues.commands import ShareSettings
from penstock.queues.layout import QueueKey


class SettingsOfQueues:
    """Asked for every request about records, so settings are made once per change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._broker: Mapping[str, str] | None = None
        self._shared: ShareSettings | None = None
        # Of groups that have some of their own, with what they were made from.
        self._own: dict[GroupId, tuple[Mapping[str, str], ShareSettings]] = {}

    def of(self, group_id: GroupId) -> ShareSettings:
        if self._broker is not self._cluster.broker_settings:
            self._broker = self._cluster.broker_settings
            self._shared, self._own = None, {}
        configs = self._cluster.group_configs.get(group_id)
        if configs is None:
            if self._shared is None:
                self._shared = self._make(group_id)
            return self._shared
        made_from, own = self._own.get(group_id, (None, None))
        if own is None or made_from is not configs:
            own = self._make(group_id)
            if len(self._own) >= GROUPS_MAX:
                self._own = {}
            self._own[group_id] = configs, own
        return own

    def of_queue(self, key: QueueKey) -> ShareSettings:
        """What a group gives up of its own dead letters does not become letters again. A group is
        paused topic by topic."""
        settings = self.of(key.group_id)
        if not settings.has_dead_letters and not settings.is_paused:
            return settings
        topic = self._cluster.topic_by_id(key.topic_id)
        name = "" if topic is None else topic.name
        is_paused = settings.is_paused and self.is_paused(key.group_id, name)
        has_letters = settings.has_dead_letters and name != self.letters_topic_of(key.group_id)
        if (is_paused, has_letters) == (settings.is_paused, settings.has_dead_letters):
            return settings
        return replace(settings, is_paused=is_paused, has_dead_letters=has_letters)

    def is_paused(self, group_id: GroupId, topic: str) -> bool:
        return topic in self._cluster.group_setting(group_id, PAUSED_TOPICS).split(",")

    def letters_topic_of(self, group_id: GroupId) -> str:
        """Empty if the group has none."""
        return self._cluster.group_setting(group_id, TOPIC_NAME)

    def copies_records(self, group_id: GroupId) -> bool:
        return self._cluster.group_setting(group_id, COPY_RECORD_ENABLE) == "true"

    def start_of(self, group_id: GroupId) -> StartPosition:
        """Where the group starts in a partition that it has not read yet."""
        return start_position(self._cluster.group_setting(group_id, AUTO_OFFSET_RESET))

    def has_own_start(self, group_id: GroupId) -> bool:
        return AUTO_OFFSET_RESET in self._cluster.group_configs.get(group_id, {})

    def _make(self, group_id: GroupId) -> ShareSettings:
        setting = self._cluster.group_setting

        def number(name: str) -> int:
            return int(setting(group_id, name))

        def is_on(name: str) -> bool:
            return setting(group_id, name) == "true"

        return ShareSettings(
            lease_ms=number(RECORD_LOCK_DURATION_MS),
            delivery_attempts_max=number(DELIVERY_COUNT_LIMIT),
            leased_max=number(PARTITION_MAX_RECORD_LOCKS),
            is_renewable=is_on(RENEW_ACKNOWLEDGE_ENABLE),
            backoff=Backoff(
                first_ms=number(RETRY_BACKOFF_MS),
                max_ms=number(RETRY_BACKOFF_MAX_MS),
                jitter_percent=number(RETRY_BACKOFF_JITTER_PERCENT),
            ),
            has_delays=is_on(DELAY_ENABLE),
            has_key_order=is_on(KEY_ORDER_ENABLE),
            has_expiry=is_on(EXPIRY_ENABLE),
            expiry_ms=number(EXPIRY_MS),
            keeps_expired=is_on(EXPIRY_DEAD_LETTERS_ENABLE),
            member_leased_max=number(CONSUMER_MAX_RECORD_LOCKS),
            group_leased_max=number(GROUP_MAX_RECORD_LOCKS),
            has_dead_letters=bool(setting(group_id, TOPIC_NAME)),
            # Of some topics; which ones is for `of_queue` to say.
            is_paused=bool(setting(group_id, PAUSED_TOPICS)),
        )
