"""Topics as brokers describe them."""

import time
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.client.wire.errors import UnknownTopic, refused
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.metadata import MetadataResponseTopic

NO_LEADER = -1
NO_EPOCH = -1
NO_TOPIC_ID = UUID(int=0)
# A broker that has just begun may not have heard of a topic; so long its absence is not believed.
ABSENCE_S_MAX = 3.0
_ABSENT_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Leader(NamedTuple):
    node: int
    epoch: int


UNKNOWN_LEADER = Leader(NO_LEADER, NO_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as some broker described it; leaders are replaced when somebody knows better."""

    name: str
    topic_id: UUID
    is_internal: bool
    leaders: dict[int, Leader]
    seen_at: float

    def leader(self, partition: int) -> Leader:
        return self.leaders.get(partition, UNKNOWN_LEADER)

    def keep_newer(self, before: "TopicView | None") -> None:
        """What a broker says that has not heard of a newer leader is not taken over."""
        if before is None or before.topic_id != self.topic_id:
            return
        for partition, leader in self.leaders.items():
            known = before.leader(partition)
            if leader.epoch < known.epoch:
                self.leaders[partition] = known


def view_of(topic: MetadataResponseTopic) -> TopicView | None:
    """None for a topic that does not exist."""
    code = topic.error_code
    if code in _ABSENT_CODES:
        return None
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        name = topic.name or ""
        raise UnknownTopic(f"{name!r} can't be the name of a topic.", topic=name)
    if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise refused(f"to describe topic {topic.name}", code)
    return TopicView(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        leaders={
            one.partition_index: Leader(one.leader_id, one.leader_epoch) for one in topic.partitions
        },
        seen_at=time.monotonic(),
    )


def unknown_topic(name: str) -> UnknownTopic:
    return UnknownTopic(f"Topic {name} does not exist.", topic=name)
