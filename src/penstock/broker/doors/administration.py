"""Answers what doors ask about topics, settings, groups and nodes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from penstock.broker.configs import (
    BrokerResource,
    Edit,
    GroupResource,
    Operation,
    Resource,
    TopicResource,
)
from penstock.broker.doors import calls
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.doors.streams import ends, unknown_topic
from penstock.broker.groups import CommitOffsets, GroupDescription, OffsetToCommit
from penstock.broker.topics import Growth, NewTopic, Outcome, Topic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, TopicName

# How long a change of topics waits until every node has carried it out.
CHANGE_S_MAX = 15.0
# Partitions of a topic whose offsets are looked up at a time.
LOOKUPS_MAX = 64
_RESOURCES: Mapping[str, Callable[[str], Resource]] = {
    "topic": TopicResource,
    "broker": BrokerResource,
    "group": GroupResource,
}

# Topics


async def list_topics(desk: Desk, _: calls.ListTopics) -> calls.TopicList:
    return calls.TopicList(topics=[_summary(topic) for topic in desk.services.topics.all()])


def _summary(topic: Topic) -> calls.TopicSummary:
    return calls.TopicSummary(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=len(topic.assignments[0].replicas),
        is_internal=topic.internal,
    )


async def describe_topic(desk: Desk, call: calls.DescribeTopic) -> calls.TopicDetails:
    topic = desk.services.topics.find(call.name)
    if topic is None:
        raise unknown_topic(call.name)
    lookups = asyncio.Semaphore(LOOKUPS_MAX)

    async def bounded(partition: int) -> tuple[int, int] | None:
        async with lookups:
            return await ends(desk, topic, partition)

    views = desk.services.leaderships.describe(topic)
    offsets = await asyncio.gather(*(bounded(view.partition) for view in views))
    partitions = [
        calls.PartitionDetails(
            partition=view.partition,
            leader=view.leader if view.leader >= 0 else None,
            term=view.term,
            replicas=view.replicas,
            in_sync=view.in_sync,
            start_offset=None if found is None else found[0],
            end_offset=None if found is None else found[1],
        )
        for view, found in zip(views, offsets, strict=True)
    ]
    return calls.TopicDetails(
        summary=_summary(topic), settings=dict(topic.configs), partitions=partitions
    )


async def create_topic(desk: Desk, call: calls.CreateTopic) -> calls.TopicSummary:
    new = NewTopic(
        name=call.name,
        configs=call.settings,
        partitions=call.partitions,
        replication_factor=call.replication_factor,
    )
    outcomes = await desk.services.topics.create(
        [new], validate_only=call.validate_only, wait_s=CHANGE_S_MAX
    )
    return _summary(_made(outcomes[call.name]))


def _made(outcome: Outcome) -> Topic:
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


async def delete_topic(desk: Desk, call: calls.DeleteTopic) -> calls.Done:
    (outcome,) = await desk.services.topics.delete([TopicName(call.name)], wait_s=CHANGE_S_MAX)
    _made(outcome)
    return calls.Done()


async def grow_topic(desk: Desk, call: calls.GrowTopic) -> calls.TopicSummary:
    growth = Growth(name=call.name, partitions=call.partitions)
    outcomes = await desk.services.topics.grow([growth], wait_s=CHANGE_S_MAX)
    return _summary(_made(outcomes[call.name]))


# Settings


async def describe_settings(desk: Desk, call: calls.DescribeSettings) -> calls.SettingList:
    entries = desk.services.configs.describe(_resource(call.kind, call.name))
    return calls.SettingList(
        settings=[
            calls.SettingDetails(
                name=entry.name,
                value=entry.value,
                source=entry.source.name.lower(),
                is_read_only=entry.is_read_only,
                documentation=entry.documentation,
            )
            for entry in entries
        ]
    )


async def change_settings(desk: Desk, call: calls.ChangeSettings) -> calls.Done:
    edits = [
        Edit(name, Operation.DELETE if value is None else Operation.SET, value)
        for name, value in call.changes.items()
    ]
    (refused,) = await desk.services.configs.edit([(_resource(call.kind, call.name), edits)])
    if refused is not None:
        raise refused
    return calls.Done()


def _resource(kind: str, name: str) -> Resource:
    make = _RESOURCES.get(kind)
    if make is None:
        raise Refused(Reason.INVALID_REQUEST, f"There are no settings of a {kind!r}.")
    return make(name)


# Groups


GroupCall: TypeAlias = (
    calls.DescribeGroup | calls.DeleteGroup | calls.ReadGroupOffsets | calls.CommitGroupOffsets
)


async def at_coordinator(desk: Desk, call: GroupCall) -> BrokerId:
    return await find_coordinator(desk, call.group_id)


async def find_coordinator(desk: Desk, group_id: str) -> BrokerId:
    return (await desk.services.groups.find_coordinator(GroupId(group_id)))[0]


async def list_groups(desk: Desk, _: calls.ListGroups) -> calls.GroupList:
    answers, missing = await desk.ask_all(calls.ListOwnGroups())
    groups = [group for answer in answers for group in answer.groups]
    return calls.GroupList(
        groups=sorted(groups, key=lambda group: group.group_id), unreached=list(missing)
    )


async def list_own_groups(desk: Desk, _: calls.ListOwnGroups) -> calls.GroupList:
    found = await desk.services.groups.list_groups()
    return calls.GroupList(groups=[_group(group) for group in found], unreached=[])


def _group(group: GroupDescription) -> calls.GroupSummary:
    return calls.GroupSummary(
        group_id=group.group_id,
        type=group.group_type,
        state=group.state,
        protocol_type=group.protocol_type,
    )


async def describe_group(desk: Desk, call: calls.DescribeGroup) -> calls.GroupDetails:
    groups, group_id = desk.services.groups, GroupId(call.group_id)
    found = await groups.describe(group_id)
    if found is not None:
        members = [
            calls.GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
            )
            for member in found.members
        ]
        return calls.GroupDetails(summary=_group(found), members=members)
    return await _modern_group(desk, group_id)


async def _modern_group(desk: Desk, group_id: GroupId) -> calls.GroupDetails:
    groups = desk.services.groups
    for kind, describe in (
        ("consumer", groups.describe_consumer),
        ("share", groups.describe_share),
    ):
        found = await describe(group_id)
        if found is None:
            continue
        summary = calls.GroupSummary(
            group_id=group_id, type=kind, state=found.state, protocol_type=kind
        )
        members = [
            calls.GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
            )
            for member in found.members
        ]
        return calls.GroupDetails(summary=summary, members=members)
    raise Refused(Reason.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}.")


async def delete_group(desk: Desk, call: calls.DeleteGroup) -> calls.Done:
    (reason,) = await desk.services.groups.delete([GroupId(call.group_id)])
    if reason is not None:
        raise Refused(reason, _explained(reason, f"Group {call.group_id!r}"))
    return calls.Done()


async def read_group_offsets(desk: Desk, call: calls.ReadGroupOffsets) -> calls.GroupOffsets:
    topics = await desk.services.groups.fetch_offsets(GroupId(call.group_id), None)
    return calls.GroupOffsets(
        offsets=[
            calls.GroupOffset(
                topic=topic.topic,
                partition=one.partition,
                offset=one.committed.offset,
                metadata=one.committed.metadata,
            )
            for topic in topics
            for one in topic.offsets
            if one.committed is not None
        ]
    )


async def commit_group_offsets(desk: Desk, call: calls.CommitGroupOffsets) -> calls.Done:
    return await commit(
        desk, CommitOffsets(group_id=GroupId(call.group_id), offsets=()), call.offsets
    )


async def commit(
    desk: Desk, command: CommitOffsets, offsets: Sequence[calls.GroupOffset]
) -> calls.Done:
    """As whom the command says; raises Refused for the first that can't be committed."""
    wanted = tuple(
        OffsetToCommit(TopicName(each.topic), each.partition, each.offset, -1, each.metadata)
        for each in offsets
    )
    outcomes = await desk.services.groups.commit_offsets(replace(command, offsets=wanted))
    for each, reason in zip(offsets, outcomes, strict=True):
        if reason is not None:
            raise Refused(reason, _explained(reason, f"{each.topic}-{each.partition}"))
    return calls.Done()


def _explained(reason: Reason, what: str) -> str:
    return f"{what}: {reason.name.lower().replace('_', ' ')}."


# Nodes


async def describe_cluster(desk: Desk, _: calls.DescribeCluster) -> calls.ClusterDetails:
    leaderships = desk.services.leaderships
    controller = leaderships.controller()
    nodes = [
        calls.NodeDetails(
            node=broker.id,
            address=str(broker.kafka),
            rack=broker.rack,
            is_alive=is_alive,
            is_controller=broker.id == controller,
        )
        for broker, is_alive in leaderships.all_brokers()
    ]
    return calls.ClusterDetails(cluster_id=leaderships.cluster_id, nodes=nodes)


async def describe_node(desk: Desk, _: calls.DescribeNode) -> calls.Status:
    services = desk.services
    is_isolated = services.leaderships.isolated_s(services.clock.monotonic()) > 0
    unready = "This node knows no controller of the cluster." if is_isolated else ""
    return calls.Status(node=desk.own, unready=unready)


METHODS = (
    Method(calls.ListTopics, list_topics),
    Method(calls.DescribeTopic, describe_topic),
    Method(calls.CreateTopic, create_topic),
    Method(calls.DeleteTopic, delete_topic),
    Method(calls.GrowTopic, grow_topic),
    Method(calls.DescribeSettings, describe_settings),
    Method(calls.ChangeSettings, change_settings),
    Method(calls.ListGroups, list_groups),
    Method(calls.ListOwnGroups, list_own_groups),
    Method(calls.DescribeGroup, describe_group, at_coordinator),
    Method(calls.DeleteGroup, delete_group, at_coordinator),
    Method(calls.ReadGroupOffsets, read_group_offsets, at_coordinator),
    Method(calls.CommitGroupOffsets, commit_group_offsets, at_coordinator),
    Method(calls.DescribeCluster, describe_cluster),
    Method(calls.DescribeNode, describe_node),
)
