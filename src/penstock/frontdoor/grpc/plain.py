"""Calls that the broker answers as they are: topics, settings, groups and nodes.

A request has the fields of the broker's call, and its reply those of the broker's answer, so one
function serves all of them (translation.py).
"""

from typing import Any

from penstock.broker.doors import calls
from penstock.frontdoor.grpc import messages
from penstock.frontdoor.grpc.context import Call, Context
from penstock.frontdoor.grpc.methods import Answer, Methods
from penstock.frontdoor.grpc.translation import to_message, to_struct


def plain(kind: type[calls.Call[Any]], reply: type[Any]) -> Answer:
    """Answers a request by the broker's call with its fields."""

    async def answer(context: Context, request: Any, _: Call) -> Any:
        return to_message(reply, await context.parts.broker.ask(to_struct(kind, request)))

    return answer


def _of_topic(kind: type[calls.Call[Any]], reply: type[Any]) -> Answer:
    """After it, what is remembered of the topic may be wrong."""
    answer = plain(kind, reply)

    async def forgetting(context: Context, request: Any, call: Call) -> Any:
        try:
            return await answer(context, request, call)
        finally:
            context.parts.topics.forget(request.name)

    return forgetting


async def change_settings(
    context: Context, request: messages.ChangeSettingsRequest, _: Call
) -> messages.Done:
    changes = {
        each.name: each.value if each.HasField("value") else None for each in request.changes
    }
    call = calls.ChangeSettings(kind=request.kind, name=request.name, changes=changes)
    await context.parts.broker.ask(call)
    context.parts.topics.forget(request.name)
    return messages.Done()


ADMINISTRATION: Methods = {
    "ListTopics": plain(calls.ListTopics, messages.TopicList),
    "DescribeTopic": plain(calls.DescribeTopic, messages.TopicDetails),
    "CreateTopic": _of_topic(calls.CreateTopic, messages.TopicSummary),
    "GrowTopic": _of_topic(calls.GrowTopic, messages.TopicSummary),
    "DeleteTopic": _of_topic(calls.DeleteTopic, messages.Done),
    "DescribeSettings": plain(calls.DescribeSettings, messages.SettingList),
    "ChangeSettings": change_settings,
    "DescribeCluster": plain(calls.DescribeCluster, messages.ClusterDetails),
    "DescribeNode": plain(calls.DescribeNode, messages.NodeStatus),
}

GROUPS: Methods = {
    "ListGroups": plain(calls.ListGroups, messages.GroupList),
    "DescribeGroup": plain(calls.DescribeGroup, messages.GroupDetails),
    "DeleteGroup": plain(calls.DeleteGroup, messages.Done),
    "ReadGroupOffsets": plain(calls.ReadGroupOffsets, messages.GroupOffsets),
    "CommitGroupOffsets": plain(calls.CommitGroupOffsets, messages.Done),
}
