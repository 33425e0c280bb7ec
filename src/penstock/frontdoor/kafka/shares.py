"""What requests of share consumers have in common: who asks, what is acknowledged, where to go.

Leases of a member whose connection closed go back at once, in tasks that the door waits for when it
drains.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

from penstock.broker.queues import AckBatch, AckType, QueueDecisions, Queues
from penstock.broker.topics import Topics
from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.errors import ERROR_CODES, error_code
from penstock.frontdoor.kafka.leader_hints import HINTED, LeaderHints
from penstock.frontdoor.kafka.share_sessions import SessionKey, ShareKey, ShareSessions
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId, TopicName
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.share_fetch import (
    AcknowledgementBatch,
    ShareLeader,
    ShareNodeEndpoint,
)

# As long as an id in the form that Kafka's clients make up.
MEMBER_ID_LENGTH_MAX: Final = 36
FIRST_RENEWING_VERSION: Final = 2
# How long a request waits for leases to go back, and how long a door that drains does. With most
# brokers gone they can't, and run out by themselves.
RELEASE_SECONDS_MAX: Final = 5.0
DRAIN_SECONDS_MAX: Final = 1.0
_HINTED_CODES: Final = tuple(ERROR_CODES[reason] for reason in HINTED)

logger = logging.getLogger(__name__)


class Shares:
    """The share sessions of a door, and what becomes of the leases of those that end."""

    def __init__(self, queues: Queues, *, sessions_max: int) -> None:
        self._queues = queues
        self.sessions = ShareSessions(sessions_max)
        self._releases: set[asyncio.Task[None]] = set()

    def connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.connection_closed(connection_id):
            self._start(session.key, None)

    async def end(self, key: SessionKey, acks: "Acknowledging") -> dict[ShareKey, Refused | None]:
        """Closes a session with its last acks. Once they are decided the member gives back all
        else that it has, also if the client is gone meanwhile: no connection has the session then.
        """
        self.sessions.close(key)
        try:
            await acks.decided()
        finally:
            releasing = self._start(key, None)
        outcomes = await acks.outcomes()
        await asyncio.wait([releasing], timeout=RELEASE_SECONDS_MAX)
        return outcomes

    async def release(self, key: SessionKey, shares: Iterable[ShareKey]) -> None:
        """Gives back what the member has of these partitions. It goes on if the client is gone
        meanwhile."""
        await asyncio.wait([self._start(key, shares)], timeout=RELEASE_SECONDS_MAX)

    def _start(self, key: SessionKey, shares: Iterable[ShareKey] | None) -> asyncio.Task[None]:
        chosen = None if shares is None else list(shares)
        task = asyncio.get_running_loop().create_task(self._release(key, chosen))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    async def _release(self, key: SessionKey, shares: list[ShareKey] | None) -> None:
        try:
            await self._queues.release(key.group_id, key.member_id, shares)
        except Refused as refused:
            logger.info("kept the leases of %s in %s: %s", key.member_id, key.group_id, refused)
        except Exception:
            logger.exception("could not release the leases of %s", key.member_id)

    async def close(self) -> None:
        if self._releases:
            await asyncio.wait(list(self._releases), timeout=DRAIN_SECONDS_MAX)


def session_key(group_id: str | None, member_id: str | None) -> SessionKey:
    if group_id is None or not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise Refused(Reason.INVALID_REQUEST, "The request has no group, or no proper member id.")
    return SessionKey(GroupId(group_id), MemberId(member_id))


def check_partition(topics: Topics, key: ShareKey) -> Refused | None:
    topic_id, partition = key
    topic = topics.find_by_id(topic_id)
    if topic is None:
        return Refused(Reason.UNKNOWN_TOPIC_ID)
    if not 0 <= partition < topic.partitions:
        return Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION)
    return None


# Acknowledgements


class _Partition(Protocol):
    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class _Topic(Protocol):
    topic_id: UUID

    @property
    def partitions(self) -> Sequence[_Partition]: ...


@dataclass(slots=True, kw_only=True)
class Claims:
    """What a request says about leased records, by partition."""

    batches: dict[ShareKey, list[AckBatch]] = field(default_factory=dict)
    refused: dict[ShareKey, Refused | None] = field(default_factory=dict)
    # Named, but without any offset.
    empty: list[ShareKey] = field(default_factory=list)


def read_claims(topics: Topics, named: Iterable[_Topic], *, may_renew: bool) -> Claims:
    claims = Claims()
    said: dict[ShareKey, list[AcknowledgementBatch]] = {}
    for topic in named:
        for each in topic.partitions:
            key = (TopicId(topic.topic_id), each.partition_index)
            said.setdefault(key, []).extend(each.acknowledgement_batches)
    highest = AckType.RENEW if may_renew else AckType.REJECT
    for key, batches in said.items():
        refused = check_partition(topics, key)
        if refused is None and not _are_proper(batches, highest):
            refused = Refused(Reason.INVALID_REQUEST)
        if refused is not None:
            claims.refused[key] = refused
        elif batches:
            claims.batches[key] = [_batch(each) for each in batches]
        else:
            claims.empty.append(key)
    return claims


def _are_proper(batches: Iterable[AcknowledgementBatch], highest: AckType) -> bool:
    """Each with one type or one per offset, in the order of their offsets. Two may meet in one
    offset, as on Kafka: what is said of it first decides, and the second is refused later."""
    before = -1
    for each in batches:
        count, types = each.last_offset - each.first_offset + 1, each.acknowledge_types
        if count < 1 or each.first_offset < before or len(types) not in (1, count):
            return False
        if not all(AckType.GAP <= one <= highest for one in types):
            return False
        before = each.last_offset
    return True


def _batch(said: AcknowledgementBatch) -> AckBatch:
    return AckBatch(
        first=said.first_offset, last=said.last_offset, types=tuple(said.acknowledge_types)
    )


class Acknowledging:
    """What became of each partition; None where all of it was taken. Decided when it is made, and
    stored when it was waited for."""

    def __init__(self, queues: Queues, key: SessionKey, claims: Claims) -> None:
        self._claims = claims
        self._decisions: QueueDecisions | None = None
        if claims.batches:
            self._decisions = queues.acknowledge(key.group_id, key.member_id, claims.batches)

    @property
    def places(self) -> list[ShareKey]:
        """Those that are answered."""
        claims = self._claims
        return [*claims.refused, *claims.batches, *(claims.empty if claims.batches else ())]

    async def decided(self) -> None:
        if self._decisions is not None:
            await self._decisions.decided()

    async def outcomes(self) -> dict[ShareKey, Refused | None]:
        outcomes = dict(self._claims.refused)
        if self._decisions is not None:
            decided = await self._decisions
            outcomes |= {share: _as_kafka(refused) for share, refused in decided.items()}
            outcomes |= dict.fromkeys(self._claims.empty)
        return outcomes


def _as_kafka(refused: Refused | None) -> Refused | None:
    """To Kafka, a group that nobody has joined has no partitions."""
    if refused is not None and refused.reason is Reason.GROUP_ID_NOT_FOUND:
        return Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, refused.detail)
    return refused


# Answers


def refusal_of(refused: Refused | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if refused is None else (error_code(refused), refused.detail)


def by_topic(found: Mapping[ShareKey, Any]) -> dict[TopicId, list[Any]]:
    topics: dict[TopicId, list[Any]] = {}
    for (topic_id, _), each in found.items():
        topics.setdefault(topic_id, []).append(each)
    return topics


def hint(call: Call, found: Mapping[ShareKey, Any]) -> list[ShareNodeEndpoint]:
    """Names the leaders of partitions that this broker does not lead, in place, and where they
    are."""
    misled = [key for key, data in found.items() if data.error_code in _HINTED_CODES]
    if not misled:
        return []
    hints = LeaderHints(call.services.leaderships)
    for topic_id, partition in misled:
        leader = hints.find(TopicName(""), topic_id, partition)
        if leader is not None:
            found[topic_id, partition].current_leader = ShareLeader(
                leader_id=leader.node, leader_epoch=leader.term
            )
    return [
        ShareNodeEndpoint(
            node_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack
        )
        for broker in hints.brokers()
    ]
