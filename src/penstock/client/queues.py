"""Queues, which Kafka calls share groups: list them, describe them, begin one (KIP-932)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.client.configs import Configs, Resource
from penstock.client.errors import ClientError, GroupNotFound
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import name_of, refused
from penstock.client.wire.queue_member import NotAQueue
from penstock.client.wire.settings import WireSettings
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.kafka.messages.share_group_describe import (
    DescribedShareGroupMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE = "share"
START_SETTING = "share.auto.offset.reset"
START_EARLIEST = "earliest"
START_LATEST = "latest"
# An address where nobody answers is wrong, or nobody is there.
FIRST_CONTACT_S_MAX = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMemberView:
    member: str
    client: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePartition:
    """How far a queue is in one partition; None where the broker does not say."""

    topic: str
    partition: int
    # Everything before it is done with; None until a member has asked for records there.
    start: int | None
    # Records that are not done with; until there is a start, those where it will be.
    lag: int | None
    leader_epoch: int | None
    # On their way to the dead-letter topic, arrived there, and brought back from it; and why some
    # are still on their way, if something is wrong. Only Penstock's brokers say so.
    dying: int = 0
    dead_letters: int = 0
    redriven: int = 0
    trouble: str = ""
    # What an operator should know of it, if anything.
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenLetters:
    """What became of dead letters: delivered again, appended to the topic again, or left alone."""

    reopened: int
    copied: int
    skipped: int
    is_finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDescription:
    group: str
    state: str
    epoch: int
    assignor: str
    members: tuple[QueueMemberView, ...]
    partitions: tuple[QueuePartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that it is at work on, and those that its members want."""
        wanted = (topic for one in self.members for topic in one.topics)
        return tuple(sorted({*wanted, *(one.topic for one in self.partitions)}))

    @property
    def lag(self) -> int | None:
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


class Queues:
    """Blocking calls; `timeout_s` is for each of them."""

    def __init__(self, bootstrap: str, *, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._settings = WireSettings(
            bootstrap=bootstrap, first_contact_timeout_s=FIRST_CONTACT_S_MAX
        ).hurried(timeout_s)

    def all(self) -> list[QueueDescription]:
        """Every queue, by name."""
        with WireCluster(self._settings) as cluster:
            request = ListGroupsRequest(types_filter=[SHARE])
            answers = cluster.ask_all(request, ListGroupsResponse)
            names = {one.group_id for answer in answers for one in answer.groups}
            found = [self._described_or_none(cluster, name) for name in sorted(names)]
        return [one for one in found if one is not None]

    def describe(self, group: str) -> QueueDescription:
        """Raises GroupNotFound, or NotAQueue for a group of another kind."""
        if not group:
            raise ClientError("A group's name must not be empty.")
        with WireCluster(self._settings) as cluster:
            try:
                return self._described(cluster, group)
            except GroupNotFound:
                self._check_kind(cluster, group)
                raise

    def redrive(self, group: str, topic: str, limit: int) -> RedrivenLetters:
        """Brings back at most `limit` dead letters. Asked again, it goes on where it was."""
        request = AlterShareGroupOffsetsRequest(
            group_id=group, redriven_topic=topic, redriven_max=limit
        )
        with WireCluster(self._settings) as cluster:
            answer = cluster.ask_coordinator(
                group,
                request,
                AlterShareGroupOffsetsResponse,
                lambda found: name_of(found.error_code) if found.error_code in RETRIABLE else None,
            )
        if answer.error_code != ErrorCode.NONE:
            what = f"to bring back dead letters of group {group}"
            raise refused(what, answer.error_code, answer.error_message)
        if answer.redriven is None:
            raise ClientError(f"The broker at {self._bootstrap} can't bring back dead letters.")
        found = answer.redriven
        return RedrivenLetters(
            reopened=found.reopened,
            copied=found.copied,
            skipped=found.skipped,
            is_finished=found.is_finished,
        )

    def begin(self, group: str) -> bool:
        """Whether the queue is new; it then starts with the oldest record, unless it is set
        otherwise: in Kafka it would start with the next one."""
        try:
            self.describe(group)
        except GroupNotFound:
            pass
        else:
            return False
        with KafkaConnection(self._bootstrap, timeout_s=self._timeout_s) as connection:
            configs = Configs(connection)
            resource = Resource(group=group)
            if configs.one(resource, START_SETTING).is_default:
                configs.alter(resource, set_to={START_SETTING: START_EARLIEST})
        return True

    def set_starts(self, group: str, starts: Mapping[TopicPartition, int]) -> None:
        """Lets a queue without members go on from these offsets; one that is new begins there."""
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
        for at, offset in starts.items():
            one = AlterShareGroupOffsetsRequestPartition(
                partition_index=at.partition, start_offset=offset
            )
            topics[at.topic].append(one)
        request = AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        with WireCluster(self._settings) as cluster:
            cluster.ask_coordinator(
                group,
                request,
                AlterShareGroupOffsetsResponse,
                lambda found: _starts_complaint(group, found),
            )

    def _check_kind(self, cluster: WireCluster, group: str) -> None:
        """A coordinator of queues does not know groups of other kinds."""
        answers = cluster.ask_all(ListGroupsRequest(), ListGroupsResponse)
        kinds = {one.group_id: one.group_type for found in answers for one in found.groups}
        if kinds.get(group, SHARE) != SHARE:
            raise NotAQueue(f"Group {group} exists and is not a queue (a share group).")

    def _described_or_none(self, cluster: WireCluster, group: str) -> QueueDescription | None:
        """Nothing for a queue that was deleted since it was listed."""
        try:
            return self._described(cluster, group)
        except GroupNotFound:
            return None

    def _described(self, cluster: WireCluster, group: str) -> QueueDescription:
        answer = cluster.ask_coordinator(
            group,
            ShareGroupDescribeRequest(group_ids=[group]),
            ShareGroupDescribeResponse,
            lambda found: _complaint(group, found),
        )
        (found,) = answer.groups
        return QueueDescription(
            group=group,
            state=found.group_state.lower(),
            epoch=found.group_epoch,
            assignor=found.assignor_name,
            members=tuple(map(_member, found.members)),
            partitions=self._partitions(cluster, group),
        )

    def _partitions(self, cluster: WireCluster, group: str) -> tuple[QueuePartition, ...]:
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = cluster.ask_coordinator(
            group,
            DescribeShareGroupOffsetsRequest(groups=[wanted]),
            DescribeShareGroupOffsetsResponse,
            lambda found: _offsets_complaint(group, found),
        )
        found = [
            _partition(topic.topic_name, one)
            for described in answer.groups
            for topic in described.topics
            for one in topic.partitions
        ]
        found.sort(key=lambda one: (one.topic, one.partition))
        return tuple(self._with_waiting(cluster, group, found))

    def _with_waiting(
        self, cluster: WireCluster, group: str, found: list[QueuePartition]
    ) -> list[QueuePartition]:
        """Where a queue has not begun, what will be waiting for it counts as well."""
        places = {_place(one): one for one in found if one.start is None and one.lag is None}
        start = self._start(group) if places else ""
        if start not in (START_EARLIEST, START_LATEST):
            return found
        there = {
            TopicPartition(TopicName(topic), PartitionIndex(partition))
            for topic, partitions in cluster.partitions_known({at.topic for at in places}).items()
            for partition in partitions
        }
        known = there & places.keys()
        ends = cluster.latest(known)
        starts = cluster.earliest(known) if start == START_EARLIEST else ends
        return [
            replace(one, lag=ends[at] - starts[at]) if (at := _place(one)) in known else one
            for one in found
        ]

    def _start(self, group: str) -> str:
        with KafkaConnection(self._bootstrap, timeout_s=self._timeout_s) as connection:
            return Configs(connection).one(Resource(group=group), START_SETTING).value or ""


def _complaint(group: str, answer: ShareGroupDescribeResponse) -> str | None:
    for found in answer.groups:
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise GroupNotFound(f"Group {group} does not exist.")
        if found.error_code in RETRIABLE:
            return name_of(found.error_code)
        if found.error_code != ErrorCode.NONE:
            raise refused(f"to describe group {group}", found.error_code, found.error_message)
        if found.group_state == "Dead":
            raise GroupNotFound(f"Group {group} does not exist.")
    return None


def _starts_complaint(group: str, answer: AlterShareGroupOffsetsResponse) -> str | None:
    given = [(answer.error_code, answer.error_message)]
    given += [
        (one.error_code, one.error_message) for at in answer.responses for one in at.partitions
    ]
    for code, text in given:
        if code in RETRIABLE:
            return name_of(code)
        if code != ErrorCode.NONE:
            raise refused(f"to move group {group}", code, text)
    return None


def _offsets_complaint(group: str, answer: DescribeShareGroupOffsetsResponse) -> str | None:
    for found in answer.groups:
        if found.error_code in RETRIABLE:
            return name_of(found.error_code)
        if found.error_code != ErrorCode.NONE:
            raise refused(f"the offsets of group {group}", found.error_code, found.error_message)
        codes = [one.error_code for topic in found.topics for one in topic.partitions]
        if passing := [code for code in codes if code in _PASSING_PARTITION_CODES]:
            return name_of(passing[0])
    return None


# Of a partition whose state is led elsewhere since, or is being loaded.
_PASSING_PARTITION_CODES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def _member(found: DescribedShareGroupMember) -> QueueMemberView:
    return QueueMemberView(
        member=found.member_id,
        client=found.client_id,
        host=found.client_host,
        epoch=found.member_epoch,
        topics=tuple(sorted(found.subscribed_topic_names)),
        partitions=tuple(
            sorted(
                TopicPartition(TopicName(topic.topic_name), PartitionIndex(one))
                for topic in found.assignment.topic_partitions
                for one in topic.partitions
            )
        ),
    )


def _partition(topic: str, found: DescribeShareGroupOffsetsResponsePartition) -> QueuePartition:
    is_known = found.error_code == ErrorCode.NONE
    return QueuePartition(
        topic=topic,
        partition=found.partition_index,
        start=_known(found.start_offset, is_known),
        lag=_known(found.lag, is_known),
        leader_epoch=_known(found.leader_epoch, is_known),
        dying=found.dying_count,
        dead_letters=found.dead_letters_sent,
        redriven=found.dead_letters_redriven,
        trouble=found.dead_letters_trouble,
        note=found.note if is_known else "",
    )


def _place(one: QueuePartition) -> TopicPartition:
    return TopicPartition(TopicName(one.topic), PartitionIndex(one.partition))


def _known(number: int, is_known: bool) -> int | None:
    return number if is_known and number >= 0 else None
