"""Topics, settings, groups and nodes: what operators and their scripts ask for."""

from penstock.broker.doors import calls
from penstock.frontdoor.http import messages
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, json_answer
from penstock.frontdoor.http.routes import Route

_KINDS = {"topics": "topic", "groups": "group", "nodes": "broker"}

# Topics


async def list_topics(context: Context, _: Request) -> Answer:
    found = await context.ask(calls.ListTopics())
    topics = sorted(map(_topic, found.topics), key=lambda topic: topic.name)
    return json_answer(messages.Topics(topics))


def _topic(summary: calls.TopicSummary) -> messages.Topic:
    return messages.Topic(
        name=summary.name,
        topic_id=str(summary.topic_id),
        partitions=summary.partitions,
        replication_factor=summary.replication_factor,
        internal=summary.is_internal,
    )


async def create_topic(context: Context, request: Request) -> Answer:
    new = await request.json(messages.NewTopic)
    made = await context.ask(
        calls.CreateTopic(
            name=new.name,
            partitions=new.partitions or -1,
            replication_factor=new.replication_factor or -1,
            settings=new.settings,
            validate_only=new.validate_only,
        )
    )
    context.topics.forget(new.name)
    return json_answer(_topic(made), 200 if new.validate_only else 201)


async def describe_topic(context: Context, request: Request) -> Answer:
    found = await context.ask(calls.DescribeTopic(name=request.parameters["topic"]))
    described = messages.DescribedTopic(
        name=found.summary.name,
        topic_id=str(found.summary.topic_id),
        internal=found.summary.is_internal,
        replication_factor=found.summary.replication_factor,
        settings=found.settings,
        partitions=messages.many(messages.TopicPartition, found.partitions),
    )
    return json_answer(described)


async def grow_topic(context: Context, request: Request) -> Answer:
    change = await request.json(messages.TopicChange)
    name = request.parameters["topic"]
    grown = await context.ask(calls.GrowTopic(name=name, partitions=change.partitions))
    context.topics.forget(name)
    return json_answer(_topic(grown))


async def delete_topic(context: Context, request: Request) -> Answer:
    name = request.parameters["topic"]
    await context.ask(calls.DeleteTopic(name=name))
    context.topics.forget(name)
    return Answer(204)


# Settings


def _resource(request: Request) -> tuple[str, str]:
    """The kind of thing that the path names, and its name."""
    ((_, name),) = request.parameters.items()
    kind = _KINDS[request.path.split("/")[2]]
    if kind == "broker" and name != "all" and not (name.isascii() and name.isdigit()):
        raise Problem(404, f"There is no node {name!r}; 'all' stands for all of them.")
    return kind, "" if (kind, name) == ("broker", "all") else name


async def describe_settings(context: Context, request: Request) -> Answer:
    kind, name = _resource(request)
    found = await context.ask(calls.DescribeSettings(kind=kind, name=name))
    settings = [
        messages.Setting(
            name=each.name,
            value=each.value,
            source=each.source,
            read_only=each.is_read_only,
            documentation=each.documentation,
        )
        for each in found.settings
    ]
    return json_answer(messages.Settings(settings))


async def change_settings(context: Context, request: Request) -> Answer:
    kind, name = _resource(request)
    change = await request.json(messages.SettingsChange)
    await context.ask(calls.ChangeSettings(kind=kind, name=name, changes=change.settings))
    context.topics.forget(name)
    return Answer(204)


# Groups


async def list_groups(context: Context, _: Request) -> Answer:
    found = await context.ask(calls.ListGroups())
    return json_answer(
        messages.Groups(messages.many(messages.Group, found.groups), found.unreached)
    )


async def describe_group(context: Context, request: Request) -> Answer:
    found = await context.ask(calls.DescribeGroup(group_id=request.parameters["group"]))
    summary = found.summary
    described = messages.DescribedGroup(
        group_id=summary.group_id,
        type=summary.type,
        state=summary.state,
        protocol_type=summary.protocol_type,
        members=messages.many(messages.Member, found.members),
    )
    return json_answer(described)


async def delete_group(context: Context, request: Request) -> Answer:
    await context.ask(calls.DeleteGroup(group_id=request.parameters["group"]))
    return Answer(204)


async def read_offsets(context: Context, request: Request) -> Answer:
    found = await context.ask(calls.ReadGroupOffsets(group_id=request.parameters["group"]))
    offsets = [
        messages.CommittedOffset(each.topic, each.partition, each.offset, each.metadata)
        for each in sorted(found.offsets, key=lambda each: (each.topic, each.partition))
    ]
    return json_answer(messages.CommittedOffsets(offsets))


async def commit_offsets(context: Context, request: Request) -> Answer:
    wanted = await request.json(messages.CommittedOffsets)
    if not wanted.offsets:
        raise Problem(400, "The body has no offsets.")
    offsets = messages.many(calls.GroupOffset, wanted.offsets)
    group_id = request.parameters["group"]
    await context.ask(calls.CommitGroupOffsets(group_id=group_id, offsets=offsets))
    return Answer(204)


# Nodes


async def describe_cluster(context: Context, _: Request) -> Answer:
    found = await context.ask(calls.DescribeCluster())
    nodes = [
        messages.Node(each.node, each.address, each.rack, each.is_alive, each.is_controller)
        for each in found.nodes
    ]
    return json_answer(messages.Cluster(found.cluster_id, nodes))


def _settings_routes(path: str, what: str) -> tuple[Route, Route]:
    return (
        Route(
            method="GET",
            path=path,
            handler=describe_settings,
            summary=f"Show all settings of {what}.",
            answers={200: messages.Settings},
            problems=(404,),
        ),
        Route(
            method="PATCH",
            path=path,
            handler=change_settings,
            summary=f"Change settings of {what}.",
            help="Settings that are not named stay as they are.",
            bodies={JSON_TYPE: messages.SettingsChange},
            answers={204: None},
            problems=(404, 415),
        ),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/topics",
        handler=list_topics,
        summary="List all topics.",
        answers={200: messages.Topics},
    ),
    Route(
        method="POST",
        path="/v1/topics",
        handler=create_topic,
        summary="Create a topic.",
        bodies={JSON_TYPE: messages.NewTopic},
        answers={201: messages.Topic, 200: messages.Topic},
        problems=(409, 415, 504),
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}",
        handler=describe_topic,
        summary="Describe a topic: its settings, and where its partitions are, begin and end.",
        answers={200: messages.DescribedTopic},
        problems=(404,),
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}",
        handler=grow_topic,
        summary="Give a topic more partitions.",
        bodies={JSON_TYPE: messages.TopicChange},
        answers={200: messages.Topic},
        problems=(404, 415, 504),
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}",
        handler=delete_topic,
        summary="Delete a topic and all its records.",
        answers={204: None},
        problems=(403, 404, 504),
    ),
    *_settings_routes("/v1/topics/{topic}/settings", "a topic"),
    Route(
        method="GET",
        path="/v1/groups",
        handler=list_groups,
        summary="List the groups of all nodes.",
        answers={200: messages.Groups},
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}",
        handler=describe_group,
        summary="Describe a group and its members.",
        answers={200: messages.DescribedGroup},
        problems=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/groups/{group}",
        handler=delete_group,
        summary="Forget a group without members, and its offsets.",
        answers={204: None},
        problems=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}/offsets",
        handler=read_offsets,
        summary="Show how far a group has come.",
        answers={200: messages.CommittedOffsets},
    ),
    Route(
        method="PUT",
        path="/v1/groups/{group}/offsets",
        handler=commit_offsets,
        summary="Commit offsets for a group without members.",
        help="Partitions that are not named keep theirs.",
        bodies={JSON_TYPE: messages.CommittedOffsets},
        answers={204: None},
        problems=(404, 409, 415),
    ),
    *_settings_routes("/v1/groups/{group}/settings", "a group"),
    Route(
        method="GET",
        path="/v1/nodes",
        handler=describe_cluster,
        summary="List the nodes of the cluster.",
        answers={200: messages.Cluster},
    ),
    *_settings_routes("/v1/nodes/{node}/settings", "a node, or of 'all' nodes"),
)
