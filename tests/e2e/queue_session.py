"""A long conversation about queues, said to any broker (KIP-932).

What is said follows from a seed and from the broker's own answers: its leases and epochs. So two
brokers that answer the same are asked the same. Answers become plain values: errors by name, leased
offsets with their attempts, and the values of their records. What a broker may do either way is
left out: partitions of an answer that say nothing, and where one range of leases ends and the next
one with the same attempt begins (except where a step is about just that).
"""

import base64
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.protocol.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.kafka.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.kafka.messages.share_fetch import (
    BATCH_OPTIMIZED,
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupHeartbeatRequest,
)
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.record import Record
from tests.e2e.beside_kafka import described, say
from tests.e2e.topics import create_topic
from tests.e2e.wire import Wire, connect, frame
from tests.waiting import wait_until

GROUP_RESOURCE = 32
PATIENCE_S = 60.0
# Long enough for a broker to find what it has, on a busy machine.
FULL_WAIT_MS = 1_500
# For steps that expect nothing.
SHORT_WAIT_MS = 60
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL, OPEN = -1, 0
NOBODY = UUID(int=77)

# By topic and partition: first and last offset, and types.
Acks = dict[tuple[str, int], list[tuple[int, int, list[int]]]]
Leases = dict[int, int]


class Said(NamedTuple):
    label: str
    answer: Any


def configure_group(bootstrap: str, group: str, **settings: str) -> None:
    """Returns when the broker has heard of it; settings are given with `_` for `.`."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = say(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == ErrorCode.NONE, answer

    def are_heard() -> bool:
        found = described(bootstrap, GROUP_RESOURCE, group)
        return all(found[change.name][0] == change.value for change in changes)

    wait_until("the settings", are_heard, PATIENCE_S)


class Share:
    """One broker's side of the conversation."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = f"s-{uuid.uuid4().hex[:6]}-"
        self.said: list[Said] = []
        self.ids: dict[str, UUID] = {"nobody": NOBODY}
        # What members have, by group, member and partition: offsets with their attempts.
        self.leases: dict[tuple[str, str, str, int], Leases] = {}
        self._names: dict[UUID, str] = {NOBODY: "nobody"}
        self._topics: dict[str, str] = {}
        self._wires: dict[str, Wire] = {}
        self._members: dict[str, str] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.socket.close()

    def note(self, label: str, answer: Any) -> None:
        self.said.append(Said(label, answer))

    # Topics, groups and members

    def topic(self, name: str, partitions: int = 1) -> None:
        """One of its own for each part of the conversation, under the same short name."""
        self._topics[name] = f"{self.prefix}{name}-{len(self._names)}"
        create_topic(self.bootstrap, self._topics[name], partitions=partitions)
        asked = [MetadataRequestTopic(name=self._topics[name])]

        def is_there() -> bool:
            answer = say(self.bootstrap, ApiKey.METADATA, 12, MetadataRequest(topics=asked))
            (topic,) = answer.topics
            self.ids[name] = topic.topic_id
            self._names[topic.topic_id] = name
            return not topic.error_code and all(p.leader_id >= 0 for p in topic.partitions)

        wait_until("the topic", is_there, PATIENCE_S)

    def real(self, name: str) -> str:
        return self._topics.get(name, self.prefix + name)

    def short(self, real: str) -> str:
        names = {each: name for name, each in self._topics.items()}
        return names.get(real, real.removeprefix(self.prefix))

    def produce(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        """All of them in one batch."""
        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(offset=n, timestamp_ms=now_ms, key=None, value=value.encode(), headers=())
            for n, value in enumerate(values)
        ]
        data = PartitionProduceData(index=partition, records=build_batch(records))
        topic_data = [TopicProduceData(name=self.real(topic), partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)

        def is_stored() -> bool:
            answer = say(self.bootstrap, ApiKey.PRODUCE, 9, request)
            return bool(answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE)

        wait_until("the records", is_stored, PATIENCE_S)

    def configure(self, group: str, **settings: str) -> None:
        configure_group(self.bootstrap, self.prefix + group, **settings)

    def member(self, name: str) -> str:
        if name not in self._members:
            raw = uuid.uuid4().bytes
            self._members[name] = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        return self._members[name]

    def join(self, group: str, member: str, *topics: str) -> None:
        """Until the member has all partitions; its heartbeats are compared elsewhere."""
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.prefix + group])
        names = [self.real(topic) for topic in topics]
        epoch = JOIN_EPOCH

        def has_all() -> bool:
            nonlocal epoch
            say(self.bootstrap, ApiKey.FIND_COORDINATOR, 4, find)
            answer = self._beat(group, member, epoch, names if epoch == JOIN_EPOCH else None)
            if answer.error_code:
                return False
            epoch = answer.member_epoch
            assigned = answer.assignment and answer.assignment.topic_partitions
            return bool(assigned) and len(assigned) == len(topics)

        wait_until("an assignment", has_all, PATIENCE_S)

    def leave(self, group: str, member: str) -> None:
        answer = self._beat(group, member, LEAVE_EPOCH, None)
        self.note(f"{member} leaves {group}", ErrorCode(answer.error_code).name)

    def _beat(self, group: str, member: str, epoch: int, topics: list[str] | None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.prefix + group,
            member_id=self.member(member),
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        return say(self.bootstrap, ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)

    # Fetching and acknowledging

    def wire(self, name: str) -> Wire:
        if name not in self._wires:
            self._wires[name] = connect(self.bootstrap)
        return self._wires[name]

    def disconnect(self, member: str) -> None:
        """Returns when the broker has noticed: its session is gone."""
        self._wires.pop(member).socket.close()
        self.note(f"{member} disconnects", None)

    def fetch(
        self,
        label: str,
        group: str,
        member: str,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        acks: Acks | None = None,
        forgotten: Sequence[tuple[str, int]] = (),
        epoch: int | None = None,
        version: int = 2,
        over: str | None = None,
        wait_ms: int = FULL_WAIT_MS,
        records: int = 500,
        batch: int = 500,
        mode: int = BATCH_OPTIMIZED,
        is_renew_ack: bool = False,
        bytes_max: int = 1 << 20,
        has_raw_ranges: bool = False,
        **odd: Any,
    ) -> dict[tuple[str, int], Leases]:
        named: dict[str, dict[int, Any]] = {}
        for topic, index in partitions:
            named.setdefault(topic, {})[index] = []
        for (topic, index), batches in (acks or {}).items():
            named.setdefault(topic, {})[index] = _batches(batches)
        gone: dict[str, list[int]] = {}
        for topic, index in forgotten:
            gone.setdefault(topic, []).append(index)
        fields = {"group_id": self.prefix + group, "member_id": self.member(member), **odd}
        request = ShareFetchRequest(
            share_session_epoch=self._epoch(group, member, epoch),
            max_wait_ms=0 if is_renew_ack else wait_ms,
            min_bytes=0 if is_renew_ack else 1,
            max_bytes=0 if is_renew_ack else bytes_max,
            max_records=0 if is_renew_ack else records,
            batch_size=batch,
            share_acquire_mode=mode,
            is_renew_ack=is_renew_ack,
            topics=[
                ShareFetchTopic(
                    topic_id=self.ids[topic],
                    partitions=[
                        ShareFetchPartition(partition_index=index, acknowledgement_batches=each)
                        for index, each in of_topic.items()
                    ],
                )
                for topic, of_topic in named.items()
            ],
            forgotten_topics_data=[
                ShareForgottenTopic(topic_id=self.ids[topic], partitions=indexes)
                for topic, indexes in gone.items()
            ],
            **fields,
        )
        wire = self.wire(over or member)
        wire.send(frame(ApiKey.SHARE_FETCH, version, request))
        answer = wire.receive(ApiKey.SHARE_FETCH, version)
        self._advance(group, member, epoch, answer)
        self.note(f"{label}: {member} of {group} fetches", self._fetched(answer, has_raw_ranges))
        self._forget(group, member, acks or {}, answer, "acknowledge_error_code")
        return self._lease(group, member, answer)

    def acknowledge(
        self,
        label: str,
        group: str,
        member: str,
        acks: Acks,
        *,
        epoch: int | None = None,
        version: int = 2,
        is_renew_ack: bool = False,
        **odd: Any,
    ) -> None:
        named: dict[str, dict[int, Any]] = {}
        for (topic, index), batches in acks.items():
            named.setdefault(topic, {})[index] = _batches(batches)
        fields = {"group_id": self.prefix + group, "member_id": self.member(member), **odd}
        request = ShareAcknowledgeRequest(
            share_session_epoch=self._epoch(group, member, epoch),
            is_renew_ack=is_renew_ack,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.ids[topic],
                    partitions=[
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=each)
                        for index, each in of_topic.items()
                    ],
                )
                for topic, of_topic in named.items()
            ],
            **fields,
        )
        wire = self.wire(member)
        wire.send(frame(ApiKey.SHARE_ACKNOWLEDGE, version, request))
        answer = wire.receive(ApiKey.SHARE_ACKNOWLEDGE, version)
        self._advance(group, member, epoch, answer)
        self._forget(group, member, acks, answer, "error_code")
        self.note(f"{label}: {member} of {group} acknowledges", self._acknowledged(answer))

    def _epoch(self, group: str, member: str, epoch: int | None) -> int:
        return self._epochs.get((group, member), OPEN) if epoch is None else epoch

    def _advance(self, group: str, member: str, epoch: int | None, answer: Any) -> None:
        if answer.error_code:
            return
        if epoch == FINAL:
            self._epochs[group, member] = OPEN
            self.drop_leases(group, member)
        elif epoch is None or epoch == OPEN:
            self._epochs[group, member] = self._epoch(group, member, epoch) + 1

    def drop_leases(self, group: str, member: str) -> None:
        for key in [key for key in self.leases if key[:2] == (group, member)]:
            del self.leases[key]

    def forget_session(self, group: str, member: str) -> None:
        self._epochs[group, member] = OPEN
        self.drop_leases(group, member)

    def _lease(self, group: str, member: str, answer: Any) -> dict[tuple[str, int], Leases]:
        found: dict[tuple[str, int], Leases] = {}
        for name, part in self._parts(answer):
            leased = _leased(part)
            if leased:
                found[name, part.partition_index] = leased
                place = (group, member, name, part.partition_index)
                self.leases.setdefault(place, {}).update(leased)
        return found

    def _forget(self, group: str, member: str, acks: Acks, answer: Any, field: str) -> None:
        """What was acknowledged is leased no more, unless it was renewed."""
        for name, part in self._parts(answer):
            batches = acks.get((name, part.partition_index))
            if batches is None or getattr(part, field):
                continue
            leased = self.leases.get((group, member, name, part.partition_index), {})
            for first, last, types in batches:
                for offset in range(first, last + 1):
                    said = types[0] if len(types) == 1 else types[offset - first]
                    if said != RENEW:
                        leased.pop(offset, None)

    # Plain values

    def _parts(self, answer: Any) -> Iterator[tuple[str, Any]]:
        for topic in answer.responses:
            for part in topic.partitions:
                yield self._names.get(topic.topic_id, "?"), part

    def _fetched(self, answer: Any, has_raw_ranges: bool) -> Any:
        found = {}
        for name, part in self._parts(answer):
            plain = _fetched_part(part, has_raw_ranges)
            if plain != _NOTHING:
                found[name, part.partition_index] = plain
        lock_ms = answer.acquisition_lock_timeout_ms
        return ErrorCode(answer.error_code).name, lock_ms, dict(sorted(found.items()))

    def _acknowledged(self, answer: Any) -> Any:
        found = {
            (name, part.partition_index): ErrorCode(part.error_code).name
            for name, part in self._parts(answer)
        }
        lock_ms = answer.acquisition_lock_timeout_ms
        return ErrorCode(answer.error_code).name, lock_ms, dict(sorted(found.items()))

    # Offsets

    def describe(self, group: str, *topics: tuple[str, list[int]], version: int = 1) -> None:
        """Where the queue starts is not compared: Kafka says where it started before the last
        change."""
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=self.real(name), partitions=indexes)
            for name, indexes in topics
        ]
        of_group = DescribeShareGroupOffsetsRequestGroup(
            group_id=self.prefix + group, topics=asked or None
        )
        request = DescribeShareGroupOffsetsRequest(groups=[of_group])
        answer = say(self.bootstrap, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request)
        (found,) = answer.groups
        plain = {
            (self.short(each.topic_name), part.partition_index): (
                ErrorCode(part.error_code).name,
                part.start_offset >= 0,
                part.lag,
            )
            for each in found.topics
            for part in each.partitions
        }
        code = ErrorCode(found.error_code).name
        self.note(f"describe offsets of {group}", (code, dict(sorted(plain.items()))))

    def alter(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        named: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for (topic, index), start in offsets.items():
            part = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
            named.setdefault(topic, []).append(part)
        request = AlterShareGroupOffsetsRequest(
            group_id=self.prefix + group if group else "",
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=self.real(name), partitions=parts)
                for name, parts in named.items()
            ],
        )
        answer = say(self.bootstrap, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)
        plain = {
            (self.short(each.topic_name), part.partition_index): ErrorCode(part.error_code).name
            for each in answer.responses
            for part in each.partitions
        }
        self.note(
            f"alter offsets of {group}: {offsets}",
            (ErrorCode(answer.error_code).name, dict(sorted(plain.items()))),
        )

    def delete_offsets(self, group: str, *topics: str) -> None:
        request = DeleteShareGroupOffsetsRequest(
            group_id=self.prefix + group if group else "",
            topics=[
                DeleteShareGroupOffsetsRequestTopic(topic_name=self.real(name)) for name in topics
            ],
        )
        answer = say(self.bootstrap, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request)
        plain = {
            self.short(each.topic_name): ErrorCode(each.error_code).name
            for each in answer.responses
        }
        self.note(
            f"delete offsets of {group}: {topics}",
            (ErrorCode(answer.error_code).name, dict(sorted(plain.items()))),
        )


_NOTHING = ("NONE", "NONE", [], [])


def _batches(batches: list[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in batches
    ]


def _leased(part: Any) -> Leases:
    return {
        offset: each.delivery_count
        for each in part.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def _fetched_part(part: Any, has_raw_ranges: bool) -> Any:
    ranges = [(r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records]
    leased = _leased(part)
    assert len(leased) == sum(last - first + 1 for first, last, _ in ranges), "leased twice"
    values = {
        record.offset: record.value
        for record in _records(bytes(part.records or b""))
        if record.offset in leased
    }
    return (
        ErrorCode(part.error_code).name,
        ErrorCode(part.acknowledge_error_code).name,
        ranges if has_raw_ranges else _joined(ranges),
        [values.get(offset) for offset in sorted(leased)],
    )


def _records(data: bytes) -> Iterator[Record]:
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        yield from decode_records(data[position : position + header.size])
        position += header.size


def _joined(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    joined: list[tuple[int, int, int]] = []
    for first, last, attempt in sorted(ranges):
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == attempt:
            joined[-1] = (joined[-1][0], last, attempt)
        else:
            joined.append((first, last, attempt))
    return joined
