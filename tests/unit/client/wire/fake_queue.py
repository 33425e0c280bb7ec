"""A share group as brokers keep one, in memory: leases, attempts, sessions, an assignment.

Leases last until they are settled or their session is over; sessions end when a test says so.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from penstock.protocol.kafka.messages.share_acknowledge import (
    AcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.protocol.kafka.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeader,
)
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareHeartbeatAssignment,
    ShareHeartbeatTopicPartitions,
)
from tests.unit.client.wire.fake_broker import FakeBroker, FakeCluster, batch

NOT_LEADER, NOT_COORDINATOR = 6, 16
NOT_ACQUIRED, NO_SESSION, WRONG_EPOCH = 121, 122, 123
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LEAVE = -1
# As brokers send it that say nothing about leaders.
NO_HINT = ShareLeader(leader_id=0, leader_epoch=0)


@dataclass
class Slot:
    """One record."""

    value: bytes
    attempts: int = 0
    # Who has it; None while nobody does.
    member: str | None = None
    # How it ended.
    end: int | None = None


@dataclass
class FakeQueue:
    """Answers for all nodes of a cluster; `records` are those of each partition of its topic."""

    cluster: FakeCluster
    records: dict[int, list[Slot]]
    coordinator: int = 1
    lease_ms: int = 60_000
    delivery_limit: int = 5
    # By node and member.
    sessions: dict[tuple[int, str], int] = field(default_factory=dict)
    heartbeats: list[ShareGroupHeartbeatRequest] = field(default_factory=list)
    # Codes that the next heartbeats get.
    refusals: list[int] = field(default_factory=list)
    acks: list[tuple[int, int, int, int]] = field(default_factory=list)
    is_durable: bool = False

    def __post_init__(self) -> None:
        self.turn = threading.Lock()
        for number, node in self.cluster.nodes.items():
            node.handlers |= {
                ApiKey.FIND_COORDINATOR: self._find,
                ApiKey.SHARE_GROUP_HEARTBEAT: self._locked(number, self._heartbeat),
                ApiKey.SHARE_FETCH: self._locked(number, self._fetch),
                ApiKey.SHARE_ACKNOWLEDGE: self._locked(number, self._acknowledge),
            }

    def slot(self, partition: int, offset: int) -> Slot:
        return self.records[partition][offset]

    def is_done(self) -> bool:
        return all(one.end is not None for ones in self.records.values() for one in ones)

    def values(self, end: int) -> list[bytes]:
        return [one.value for ones in self.records.values() for one in ones if one.end == end]

    def end_sessions(self, number: int) -> None:
        """As the end of a connection does."""
        with self.turn:
            for node, member in list(self.sessions):
                if node == number:
                    self._end(node, member)

    def _end(self, number: int, member: str) -> None:
        self.sessions.pop((number, member), None)
        for partition, slots in self.records.items():
            if self.is_durable or self.cluster.leaders[partition][0] != number:
                continue
            for slot in slots:
                if slot.member == member:
                    slot.member = None

    def _locked(self, number: int, handler: Any) -> Any:
        def handle(request: Any, version: int) -> object:
            with self.turn:
                return handler(number, request)

        return handle

    def _find(self, request: object, version: int) -> FindCoordinatorResponse:
        node: FakeBroker = self.cluster[self.coordinator]
        found = Coordinator(key="g", host="127.0.0.1", port=node.port)
        return FindCoordinatorResponse(host="127.0.0.1", port=node.port, coordinators=[found])

    def _heartbeat(self, number: int, request: ShareGroupHeartbeatRequest) -> object:
        self.heartbeats.append(request)
        if number != self.coordinator:
            return ShareGroupHeartbeatResponse(error_code=NOT_COORDINATOR)
        if code := self.refusals.pop(0) if self.refusals else 0:
            return ShareGroupHeartbeatResponse(error_code=code)
        assigned = ShareHeartbeatTopicPartitions(
            topic_id=self.cluster.topic_id, partitions=sorted(self.records)
        )
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(request.member_epoch, 1) if request.member_epoch >= 0 else LEAVE,
            heartbeat_interval_ms=50,
            assignment=ShareHeartbeatAssignment(topic_partitions=[assigned]),
        )

    def _session(self, number: int, request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
        """An error code; the session's next epoch is noted."""
        member = request.member_id or ""
        epoch = request.share_session_epoch
        if epoch == 0 and isinstance(request, ShareFetchRequest):
            self._end(number, member)
            self.sessions[number, member] = 1
            return 0
        if (number, member) not in self.sessions:
            return NO_SESSION
        if epoch == -1:
            self._end(number, member)
            return 0
        if epoch != self.sessions[number, member]:
            return WRONG_EPOCH
        self.sessions[number, member] += 1
        return 0

    def _fetch(self, number: int, request: ShareFetchRequest) -> ShareFetchResponse:
        if code := self._session(number, request):
            return ShareFetchResponse(error_code=code)
        parts, room = [], request.max_records
        for partition, slots in sorted(self.records.items()):
            if self.cluster.leaders[partition][0] != number:
                named = [
                    one.partition_index for topic in request.topics for one in topic.partitions
                ]
                if partition in named:
                    parts.append(
                        ShareFetchPartitionData(
                            partition_index=partition,
                            error_code=NOT_LEADER,
                            current_leader=NO_HINT,
                        )
                    )
                continue
            taken = self._lease(slots, request.member_id or "", room)
            room -= len(taken)
            if taken:
                parts.append(self._part(partition, slots, taken))
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lease_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=self.cluster.topic_id, partitions=parts)
            ],
        )

    def _lease(self, slots: list[Slot], member: str, room: int) -> list[int]:
        free = [at for at, one in enumerate(slots) if one.end is None and one.member is None]
        for at in free[:room]:
            slots[at].member = member
            slots[at].attempts += 1
        return free[:room]

    def _part(self, partition: int, slots: list[Slot], taken: list[int]) -> ShareFetchPartitionData:
        return ShareFetchPartitionData(
            partition_index=partition,
            current_leader=NO_HINT,
            records=batch(*(one.value for one in slots)),
            acquired_records=[
                AcquiredRecords(first_offset=at, last_offset=at, delivery_count=slots[at].attempts)
                for at in taken
            ],
        )

    def _acknowledge(self, number: int, request: ShareAcknowledgeRequest) -> object:
        if code := self._session(number, request):
            return ShareAcknowledgeResponse(error_code=code)
        parts = [
            AcknowledgePartitionData(
                partition_index=one.partition_index,
                current_leader=NO_HINT,
                error_code=self._settle(number, request.member_id or "", one),
            )
            for topic in request.topics
            for one in topic.partitions
        ]
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lease_ms,
            responses=[
                ShareAcknowledgeTopicResponse(topic_id=self.cluster.topic_id, partitions=parts)
            ],
        )

    def _settle(self, number: int, member: str, part: Any) -> int:
        """All of a partition or nothing."""
        if self.cluster.leaders[part.partition_index][0] != number:
            return NOT_LEADER
        slots = self.records[part.partition_index]
        said = [
            (offset, one.acknowledge_types[0])
            for one in part.acknowledgement_batches
            for offset in range(one.first_offset, one.last_offset + 1)
        ]
        if any(slots[at].member != member or slots[at].end is not None for at, _ in said):
            return NOT_ACQUIRED
        for at, kind in said:
            self.acks.append((number, part.partition_index, at, kind))
            self._take(slots[at], kind)
        return 0

    def _take(self, slot: Slot, kind: int) -> None:
        if kind == RENEW:
            return
        slot.member = None
        if kind != RELEASE or slot.attempts >= self.delivery_limit:
            slot.end = kind
