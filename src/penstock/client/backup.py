"""What a cluster is beside its records: topics, settings, and how far groups and queues have come.

`take` reads it from one cluster, and `restore_topics` and `restore_groups` give it to another one.
Records travel by archive and replay, between the two. A group's offset is restored only where it
means the same record: in a partition that begins where it began, and holds at least as much. A
wrong offset would skip records, and nobody would notice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import msgspec

from penstock.client.admin import Admin
from penstock.client.configs import Resource
from penstock.client.errors import ClientError, GroupActive, TopicExists
from penstock.client.share_groups import SHARE
from penstock.model.errors import Explained
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

# What others set at run time, by the name of its source.
_OF_ALL_NODES, _OF_GROUP = "dynamic default broker", "dynamic group"
Kind = Literal["topic", "setting", "group", "queue"]


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the file."""


class SavedPartition(Struct):
    partition: int
    start: int
    end: int


class SavedTopic(Struct):
    name: str
    replicas: int
    settings: dict[str, str]
    partitions: list[SavedPartition]


class SavedOffset(Struct):
    topic: str
    partition: int
    offset: int


class SavedGroup(Struct):
    group: str
    # A queue is a group of the type share, whose offsets are where it starts.
    type: str
    settings: dict[str, str]
    offsets: list[SavedOffset]


class Backup(Struct):
    format: Literal["penstock-metadata"]
    version: Literal[1]
    cluster_id: str
    taken_at: str
    settings: dict[str, str]
    topics: list[SavedTopic]
    groups: list[SavedGroup]


class BackupUnusable(Explained):
    """The bytes are not a backup that this version can read."""


class Restored(Struct):
    """What became of one thing; `problem` is a sentence, or empty."""

    kind: Kind
    name: str
    done: str
    problem: str = ""


def encode(backup: Backup) -> bytes:
    return msgspec.json.format(msgspec.json.encode(backup), indent=2) + b"\n"


def decode(content: bytes) -> Backup:
    try:
        return msgspec.json.decode(content, type=Backup)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupUnusable(f"It is not a backup of a cluster's metadata: {error}.") from None


# Taking it


def take(admin: Admin) -> Backup:
    """Groups before topics: no group is then ahead of the end of a partition."""
    cluster = admin.cluster()
    groups = list(_groups(admin))
    return Backup(
        format="penstock-metadata",
        version=1,
        cluster_id=cluster.cluster_id,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=_settings(admin, Resource(all_nodes=True), _OF_ALL_NODES),
        topics=list(_topics(admin)),
        groups=groups,
    )


def _topics(admin: Admin) -> Iterator[SavedTopic]:
    for topic in admin.topics.all():
        if topic.internal:
            continue
        places = [_place(topic.name, index) for index in range(topic.partitions)]
        # Starts first: a retention in between makes what is there look more than it is.
        starts, ends = admin.offsets.earliest(places), admin.offsets.latest(places)
        own = [one for one in admin.topics.settings(topic.name) if not one.is_default]
        yield SavedTopic(
            name=topic.name,
            replicas=topic.replicas,
            settings={one.name: one.value for one in own if one.value is not None},
            partitions=[
                SavedPartition(partition=at.partition, start=starts[at], end=ends[at])
                for at in places
            ],
        )


def _groups(admin: Admin) -> Iterator[SavedGroup]:
    for group in admin.groups.all():
        if group.type == SHARE:
            continue
        committed = admin.groups.committed(group.group)
        yield SavedGroup(
            group=group.group,
            type=group.type,
            settings=_settings(admin, Resource(group=group.group), _OF_GROUP),
            offsets=[
                SavedOffset(topic=at.topic, partition=at.partition, offset=offset)
                for at, (offset, _) in sorted(committed.items())
            ],
        )
    for queue in admin.queues.all():
        yield SavedGroup(
            group=queue.group,
            type=SHARE,
            settings=_settings(admin, Resource(group=queue.group), _OF_GROUP),
            offsets=[
                SavedOffset(topic=one.topic, partition=one.partition, offset=one.start)
                for one in queue.partitions
                if one.start is not None
            ],
        )


def _settings(admin: Admin, resource: Resource, source: str) -> dict[str, str]:
    found = admin.settings.all(resource)
    return {one.name: one.value for one in found if one.source == source and one.value is not None}


# Giving it back


def restore_topics(admin: Admin, backup: Backup) -> Iterator[Restored]:
    """Settings of all nodes, and topics without records; what is there already stays as it is."""
    if backup.settings:
        yield _attempt("setting", "all nodes", partial(_set_for_all, admin, backup.settings))
    for topic in backup.topics:
        yield _attempt("topic", topic.name, partial(_create, admin, topic))


def _set_for_all(admin: Admin, settings: Mapping[str, str]) -> str:
    admin.settings.alter(Resource(all_nodes=True), set_to=settings)
    return f"set: {', '.join(settings)}"


def _create(admin: Admin, topic: SavedTopic) -> str:
    wanted = len(topic.partitions)
    # A smaller cluster keeps fewer copies.
    replicas = min(topic.replicas, len(admin.cluster().nodes))
    try:
        admin.topics.create(
            topic.name, partitions=wanted, replicas=replicas, settings=topic.settings
        )
    except TopicExists:
        found = len(admin.topics.partitions(topic.name))
        if found != wanted:
            raise ClientError(
                f"Topic {topic.name} exists with {found} partitions, but had {wanted}."
            ) from None
        return "was there"
    fewer = f" with {replicas} copies instead of {topic.replicas}"
    return "created" + (fewer if replicas < topic.replicas else "")


def restore_groups(admin: Admin, backup: Backup) -> Iterator[Restored]:
    """After the records are back: settings and offsets of groups and queues."""
    topics = {topic.name: topic for topic in backup.topics}
    present = {topic.name: topic.partitions for topic in admin.topics.all()}
    for group in backup.groups:
        kind: Kind = "queue" if group.type == SHARE else "group"
        act = partial(_restore_group, admin, group, topics, present)
        yield _attempt(kind, group.group, act)


def _restore_group(
    admin: Admin,
    group: SavedGroup,
    topics: Mapping[str, SavedTopic],
    present: Mapping[str, int],
) -> str:
    if group.settings:
        admin.settings.alter(Resource(group=group.group), set_to=group.settings)
    wanted = {_place(one.topic, one.partition): one.offset for one in group.offsets}
    there = [at for at in wanted if at.partition < present.get(at.topic, 0)]
    starts, ends = admin.offsets.earliest(there), admin.offsets.latest(there)
    usable: dict[TopicPartition, int] = {}
    problems: list[str] = []
    for at, offset in wanted.items():
        problem = _why_not(at, offset, topics.get(at.topic), starts.get(at), ends.get(at))
        if problem:
            problems.append(f"{at} {problem}")
        else:
            usable[at] = offset
    if usable:
        _move(admin, group, usable)
    if problems:
        raise ClientError(
            f"Of {len(wanted)} offsets of group {group.group}, {len(usable)} were restored: "
            f"{'; '.join(problems)}."
        )
    return f"{len(usable)} offsets"


def _why_not(
    at: TopicPartition, offset: int, saved: SavedTopic | None, start: int | None, end: int | None
) -> str:
    """Why an offset would not mean the same record here, or nothing."""
    if start is None or end is None:
        return "does not exist here"
    if saved is None or at.partition >= len(saved.partitions):
        return "is not in the backup"
    if "compact" in saved.settings.get("cleanup.policy", ""):
        return "is compacted, so its offsets changed"
    if start != saved.partitions[at.partition].start:
        begun = saved.partitions[at.partition].start
        return f"begins at offset {start} and not at {begun}, so its offsets changed"
    if offset > end:
        return f"ends at offset {end}, before the group's {offset}"
    return ""


def _move(admin: Admin, group: SavedGroup, offsets: Mapping[TopicPartition, int]) -> None:
    if group.type == SHARE:
        admin.queues.set_starts(group.group, offsets)
        return
    if any(one.group == group.group for one in admin.groups.all()):
        try:
            admin.groups.check_inactive(group.group)
        except GroupActive as active:
            raise ClientError(f"{active} Its offsets belong to them.") from None
    admin.groups.set_offsets(group.group, offsets)


def _attempt(kind: Kind, name: str, act: Callable[[], str]) -> Restored:
    """One that fails does not stop the others."""
    try:
        return Restored(kind=kind, name=name, done=act())
    except ClientError as error:
        return Restored(kind=kind, name=name, done="", problem=str(error))


def problems_of(outcomes: Iterable[Restored]) -> list[str]:
    return [one.problem for one in outcomes if one.problem]


def _place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
