"""What has to be known of a topic to archive it, or to bring an archive back into it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.admin import Admin

# Without these, a topic might not take the records that another one took.
KEPT_SETTINGS = (
    "max.message.bytes",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    name: str
    topic_id: str
    partitions: int
    settings: Mapping[str, str]
    """All of them, by Kafka's names."""
    own_settings: Mapping[str, str]
    """Those that the topic itself has."""

    @property
    def kept_settings(self) -> dict[str, str]:
        return {
            name: self.own_settings[name] for name in KEPT_SETTINGS if name in self.own_settings
        }


def topic_facts(admin: "Admin", topic: str) -> TopicFacts:
    """Raises TopicNotFound."""
    found = admin.topics.describe(topic)
    settings = [one for one in admin.topics.settings(topic) if one.value is not None]
    return TopicFacts(
        name=topic,
        topic_id=found.topic_id,
        partitions=len(found.partitions),
        settings={one.name: str(one.value) for one in settings},
        own_settings={one.name: str(one.value) for one in settings if not one.is_default},
    )
