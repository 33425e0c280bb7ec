"""Groups: list, describe with lag, reset, delete."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import confluent_kafka

from penstock.client.asking import Asking
from penstock.client.errors import ClientError, GroupActive, GroupNotFound, from_kafka
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.offsets import Offsets
from penstock.client.share_groups import SHARE, ShareGroups
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.kafka.messages.share_group_describe import DescribedShareGroupMember

CLASSIC, CONSUMER = "classic", "consumer"


class _Epochs(NamedTuple):
    of_group: int | None
    of_members: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    group: str
    state: str
    # "classic", or "consumer" for a group whose partitions the broker assigns (KIP-848). Those of
    # the type "share" (KIP-932) are only in the overview.
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """A group in a list; `lag` is None if it has no offsets, or they can't be had just now."""

    group: str
    type: str
    state: str
    members: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member: str
    instance: str | None
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]
    # Of groups of the type consumer only: what the member will have, and how far it has come to it.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """Where a group is in one partition; offsets are None when there is none."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    metadata: str
    member: str | None
    client: str | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    type: str
    state: str
    # Not of classic groups: a member at this epoch has reached its target.
    epoch: int | None
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.offsets)


class Groups:
    def __init__(self, asking: Asking, offsets: Offsets) -> None:
        self._asking = asking
        self._offsets = offsets
        self._shares = ShareGroups(asking)

    def all(self) -> list[GroupSummary]:
        """Every group, by name."""
        future = self._asking.client.list_consumer_groups(request_timeout=self._asking.timeout_s)
        found = self._asking.answer(future, "the list of groups")
        if found.errors:
            first = found.errors[0]
            raise from_kafka(
                first.args[0] if isinstance(first, confluent_kafka.KafkaException) else first,
                what="the list of groups",
                bootstrap=self._asking.bootstrap,
            )
        listed = [
            GroupSummary(group=one.group_id, state=_state(one), type=_type(one))
            for one in found.valid
        ]
        return sorted(listed, key=lambda one: one.group)

    def overview(self) -> list[GroupOverview]:
        """All groups with the number of their members and their lag."""
        shares = [
            GroupOverview(
                group=one.group_id,
                type=SHARE,
                state=one.group_state.lower(),
                members=len(one.members),
                lag=None,
            )
            for one in self._shares.all()
        ]
        return sorted([*self._with_offsets(), *shares], key=lambda one: one.group)

    def _with_offsets(self) -> list[GroupOverview]:
        listed = [one for one in self.all() if one.type != SHARE]
        if not listed:
            return []
        names = [one.group for one in listed]
        timeout_s = self._asking.timeout_s
        describing = self._asking.client.describe_consumer_groups(names, request_timeout=timeout_s)
        # librdkafka takes one group per question, so the questions are all under way at once.
        asking = {name: self._ask_committed(name) for name in names}
        committed = {name: self._committed_or_none(name, asking[name]) for name in names}
        ends = self._ends(sorted({one for held in committed.values() for one in held}))
        return [
            GroupOverview(
                group=one.group,
                type=one.type,
                state=one.state,
                members=self._member_count(one.group, describing[one.group]),
                lag=_lag(committed[one.group], ends),
            )
            for one in listed
        ]

    def describe(self, group: str) -> GroupDescription:
        """A group with its members, its committed offsets and its lag; raises GroupNotFound."""
        share = self._describe_share(group)
        if share is not None:
            return share
        found = self._found(group)
        committed = self.committed(group)
        if _state(found) == "dead" and not committed:
            raise GroupNotFound(f"Group {group} does not exist.")
        epochs = self._epochs(found)
        members = tuple(_member(one, epochs.of_members) for one in found.members)
        return GroupDescription(
            group=group,
            type=_type(found),
            state=_state(found),
            epoch=epochs.of_group,
            assignor=found.partition_assignor or "",
            coordinator=found.coordinator.id if found.coordinator else -1,
            members=members,
            offsets=self._with_lag(committed, members),
        )

    def _describe_share(self, group: str) -> GroupDescription | None:
        found = self._shares.find(group) if group else None
        if found is None:
            return None
        coordinator, described = found
        members = tuple(map(_share_member, described.members))
        return GroupDescription(
            group=group,
            type=SHARE,
            state=described.group_state.lower(),
            epoch=described.group_epoch,
            assignor=described.assignor_name,
            coordinator=coordinator,
            members=members,
            offsets=(),
        )

    def _epochs(self, found: Any) -> "_Epochs":
        """The coordinator is asked, since confluent-kafka does not tell epochs."""
        if _type(found) != CONSUMER or found.coordinator is None:
            return _Epochs(None, {})
        address = f"{found.coordinator.host}:{found.coordinator.port}"
        with KafkaConnection(address, timeout_s=self._asking.timeout_s) as connection:
            request = ConsumerGroupDescribeRequest(group_ids=[found.group_id])
            (answer,) = connection.ask(request, ConsumerGroupDescribeResponse).groups
        if answer.error_code:
            # It changed its type or its coordinator since.
            return _Epochs(None, {})
        of_members = {member.member_id: member.member_epoch for member in answer.members}
        return _Epochs(answer.group_epoch, of_members)

    def committed(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Committed offset and metadata by partition."""
        return self._committed(group, self._ask_committed(group))

    def _ask_committed(self, group: str) -> "Future[Any]":
        request = confluent_kafka.ConsumerGroupTopicPartitions(group)
        futures = self._asking.client.list_consumer_group_offsets(
            [request], request_timeout=self._asking.timeout_s
        )
        return futures[group]

    def _committed(
        self, group: str, future: "Future[Any]"
    ) -> dict[TopicPartition, tuple[int, str]]:
        found = self._asking.answer(future, f"group {group}")
        return {
            _key(one): (one.offset, one.metadata or "")
            for one in found.topic_partitions
            if one.error is None and one.offset >= 0
        }

    def _committed_or_none(
        self, group: str, future: "Future[Any]"
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Nothing for a group that was deleted since, or whose coordinator is away."""
        try:
            return self._committed(group, future)
        except ClientError:
            return {}

    def _member_count(self, group: str, future: "Future[Any]") -> int:
        try:
            return len(self._asking.answer(future, f"group {group}").members)
        except ClientError:
            return 0

    def check_inactive(self, group: str) -> None:
        """Raise GroupActive unless offsets of the group may be changed from outside."""
        if group and self._shares.find(group) is not None:
            raise ClientError(f"Group {group} is a share group, which commits no offsets.")
        found = self._found(group)
        if found.members:
            raise GroupActive(f"Group {group} has active members: stop its consumers first.")

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Move a group without members to these offsets."""
        request = confluent_kafka.ConsumerGroupTopicPartitions(
            group,
            [confluent_kafka.TopicPartition(*one, offset) for one, offset in offsets.items()],
        )
        futures = self._asking.client.alter_consumer_group_offsets(
            [request], request_timeout=self._asking.timeout_s
        )
        found = self._asking.answer(futures[group], f"group {group}")
        for one in found.topic_partitions:
            if one.error is not None:
                raise from_kafka(
                    one.error,
                    what=f"the offset of {one.topic}-{one.partition} for group {group}",
                    bootstrap=self._asking.bootstrap,
                )

    def delete(self, group: str) -> None:
        """Forget a group without members; raises GroupActive or GroupNotFound."""
        futures = self._asking.client.delete_consumer_groups(
            [group], request_timeout=self._asking.timeout_s
        )
        self._asking.answer(futures[group], f"group {group}")

    def _found(self, group: str) -> Any:
        if not group:
            raise ClientError("A group's name must not be empty.")
        futures = self._asking.client.describe_consumer_groups(
            [group], request_timeout=self._asking.timeout_s
        )
        return self._asking.answer(futures[group], f"group {group}")

    def _with_lag(
        self,
        committed: Mapping[TopicPartition, tuple[int, str]],
        members: tuple[GroupMember, ...],
    ) -> tuple[GroupOffset, ...]:
        owners = {one: member for member in members for one in member.partitions}
        partitions = sorted(committed.keys() | owners.keys())
        ends = self._ends(partitions)
        return tuple(
            GroupOffset(
                topic=one.topic,
                partition=one.partition,
                committed=committed[one][0] if one in committed else None,
                end=ends.get(one),
                metadata=committed[one][1] if one in committed else "",
                member=owners[one].member if one in owners else None,
                client=owners[one].client if one in owners else None,
            )
            for one in partitions
        )

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets; partitions of topics that were deleted since have none."""
        known = self._asking.metadata().topics
        there = [
            one
            for one in partitions
            if one.topic in known and one.partition in known[one.topic].partitions
        ]
        return self._offsets.latest(there)


def _lag(
    committed: Mapping[TopicPartition, tuple[int, str]], ends: Mapping[TopicPartition, int]
) -> int | None:
    known = [max(ends[one] - held[0], 0) for one, held in committed.items() if one in ends]
    return sum(known) if known else None


def _state(found: Any) -> str:
    name: str = found.state.name
    return name.lower().replace("_", " ")


def _type(found: Any) -> str:
    """A broker that is too old to say it has classic groups only."""
    name: str = found.type.name if found.type is not None else CLASSIC
    return CLASSIC if name == "UNKNOWN" else name.lower()


def _member(found: Any, epochs: Mapping[str, int]) -> GroupMember:
    target = found.target_assignment
    return GroupMember(
        member=found.member_id,
        instance=found.group_instance_id,
        client=found.client_id,
        host=found.host,
        partitions=tuple(sorted(_key(one) for one in found.assignment.topic_partitions)),
        target=None if target is None else tuple(sorted(map(_key, target.topic_partitions))),
        epoch=epochs.get(found.member_id),
    )


def _share_member(found: DescribedShareGroupMember) -> GroupMember:
    partitions = (
        TopicPartition(TopicName(topic.topic_name), PartitionIndex(index))
        for topic in found.assignment.topic_partitions
        for index in topic.partitions
    )
    return GroupMember(
        member=found.member_id,
        instance=None,
        client=found.client_id,
        host=found.client_host,
        partitions=tuple(sorted(partitions)),
        epoch=found.member_epoch,
    )


def _key(found: confluent_kafka.TopicPartition) -> TopicPartition:
    return TopicPartition(TopicName(found.topic), PartitionIndex(found.partition))
