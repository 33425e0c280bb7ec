"""The topic that an archive is brought back into: made if it is missing, refused if it can't be."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.errors import TopicNotFound
from penstock.pipelines.archives.description import Description
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.topic_facts import TopicFacts, topic_facts

if TYPE_CHECKING:
    from penstock.client.admin import Admin

TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME = "CreateTime"
RETENTION_MS = "retention.ms"
FOREVER = "-1"


def target_topic(admin: "Admin", topic: str, description: Description) -> TopicFacts:
    """The topic as it is now, with as many partitions as the archive's."""
    try:
        found = topic_facts(admin, topic)
    except TopicNotFound:
        admin.topics.create(
            topic,
            partitions=description.partitions,
            settings=settings_of(description),
            if_missing=True,
        )
        found = topic_facts(admin, topic)
    check_target(found, description)
    return found


def settings_of(description: Description) -> Mapping[str, str]:
    """Records keep their times, and by these many would be too old for the usual retention."""
    return {
        **description.settings,
        TIMESTAMP_TYPE: CREATE_TIME,
        RETENTION_MS: FOREVER,
    }


def check_target(found: TopicFacts, description: Description) -> None:
    if found.partitions != description.partitions:
        raise ArchiveRefused(
            f"Topic {found.name} has {found.partitions} partitions, but the archived topic"
            f" {description.topic} has {description.partitions}."
        )
    if found.settings.get(TIMESTAMP_TYPE, CREATE_TIME) != CREATE_TIME:
        raise ArchiveRefused(
            f"Topic {found.name} gives records the time of their arrival"
            f" ({TIMESTAMP_TYPE}={found.settings[TIMESTAMP_TYPE]}): their own would be lost."
        )
