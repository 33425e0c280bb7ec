"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.frontdoor.kafka.handlers import offset_commit, offset_delete, offset_fetch
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.unit.frontdoor.group_world import G, World, in_world

COMMIT_VERSIONS = range(11)
FETCH_VERSIONS = range(11)


def topic_id(world: World, name: str) -> UUID:
    topic = world.node.cluster.topic(name)
    return UUID(int=9) if topic is None else topic.topic_id


async def commit(world: World, version: int, *offsets: tuple[str, int, int], **fields: Any) -> Any:
    """The error codes by topic and partition."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id(world, name),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=4,
                    committed_metadata=fields.get("metadata", f"note {offset}"),
                )
            ],
        )
        for name, partition, offset in offsets
    ]
    wanted = {name: value for name, value in fields.items() if name != "metadata"}
    request = OffsetCommitRequest(**({"group_id": G, "topics": topics} | wanted))
    answer = await world.ask(offset_commit.API, version, request)
    if version >= 10:
        assert [t.topic_id for t in answer.topics] == [t.topic_id for t in topics]
    else:
        assert [t.name for t in answer.topics] == [t.name for t in topics]
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


async def fetch(world: World, version: int, wanted: dict[str, list[int]] | None) -> Any:
    """Topics of the response, whatever their version's place for them."""
    if version < 8:
        topics = None
        if wanted is not None:
            topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in wanted.items()
            ]
        request = OffsetFetchRequest(group_id=G, topics=topics, require_stable=version == 7)
        answer = await world.ask(offset_fetch.API, version, request)
        assert answer.error_code == ErrorCode.NONE
        return answer.topics
    group = OffsetFetchRequestGroup(group_id=G, topics=None)
    if wanted is not None:
        group.topics = [
            OffsetFetchRequestTopics(
                name=name, topic_id=topic_id(world, name), partition_indexes=indexes
            )
            for name, indexes in wanted.items()
        ]
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    answer = await world.ask(offset_fetch.API, version, request)
    assert [(g.group_id, g.error_code) for g in answer.groups] == [(G, ErrorCode.NONE)]
    return answer.groups[0].topics


def test_commit_and_fetch_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in COMMIT_VERSIONS:
            codes = await commit(world, version, ("t", 0, 100 + version), ("u", 1, version))
            assert codes == [ErrorCode.NONE] * 2
            for fetched in FETCH_VERSIONS:
                (topic,) = await fetch(world, fetched, {"t": [0, 1]})
                found, missing = topic.partitions
                if fetched >= 10:
                    assert topic.topic_id == topic_id(world, "t")
                else:
                    assert topic.name == "t"
                assert found.committed_offset == 100 + version
                assert found.metadata == f"note {100 + version}"
                if fetched >= 5:
                    assert found.committed_leader_epoch == (4 if version >= 6 else -1)
                assert (missing.committed_offset, missing.metadata) == (-1, "")
                assert (found.error_code, missing.error_code) == (0, 0)

    in_world(tmp_path, body)


@pytest.mark.parametrize("version", FETCH_VERSIONS[2:])
def test_null_topics_ask_for_all(tmp_path: Path, version: int) -> None:
    async def body(world: World) -> None:
        assert await fetch(world, version, None) == []
        await commit(world, 9, ("t", 0, 1), ("u", 1, 2))
        topics = await fetch(world, version, None)
        assert [[p.committed_offset for p in topic.partitions] for topic in topics] == [[1], [2]]
        if version >= 10:
            assert [t.topic_id for t in topics] == [topic_id(world, name) for name in "tu"]
        else:
            assert [t.name for t in topics] == ["t", "u"]

    in_world(tmp_path, body)


def test_several_groups_are_fetched_at_once_and_fail_alone(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await commit(world, 9, ("t", 0, 5))
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (G, "", "nobody")]
        answer = await world.ask(offset_fetch.API, 8, OffsetFetchRequest(groups=groups))
        assert [(g.group_id, g.error_code, len(g.topics)) for g in answer.groups] == [
            (G, ErrorCode.NONE, 1),
            ("", ErrorCode.INVALID_GROUP_ID, 0),
            ("nobody", ErrorCode.NONE, 0),
        ]

    in_world(tmp_path, body)


def test_errors_of_a_whole_fetch_have_their_place_in_every_version(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in range(8):
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            request = OffsetFetchRequest(group_id="", topics=topics)
            answer = await world.ask(offset_fetch.API, version, request)
            if version < 2:
                (partition,) = answer.topics[0].partitions
                assert partition.error_code == ErrorCode.INVALID_GROUP_ID
            else:
                assert answer.error_code == ErrorCode.INVALID_GROUP_ID

    in_world(tmp_path, body)


def test_unknown_topics_are_refused_one_by_one(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for version in COMMIT_VERSIONS:
            codes = await commit(world, version, ("?", 0, 1), ("t", 0, 1), ("t", 2, 1))
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown_name = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown
            assert codes == [unknown_name, ErrorCode.NONE, unknown]
            only = await commit(world, version, ("?", 0, 1))
            assert only == [unknown_name]
        unknown_topic, known = await fetch(world, 10, {"?": [0], "t": [0]})
        assert unknown_topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert unknown_topic.partitions[0].committed_offset == -1
        assert known.partitions[0].committed_offset == 1

    in_world(tmp_path, body)


def test_commits_of_members_and_of_others(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        joined = await world.stable()
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        for version in range(1, 11):
            assert await commit(world, version, ("t", 0, 1), **member) == [ErrorCode.NONE]
            outsider = await commit(world, version, ("t", 0, 1))
            assert outsider == [ErrorCode.UNKNOWN_MEMBER_ID]
            stale = await commit(
                world, version, ("t", 0, 1), **member | {"generation_id_or_member_epoch": 0}
            )
            assert stale == [ErrorCode.ILLEGAL_GENERATION]
            nobody = await commit(world, version, ("t", 0, 1), **member | {"group_id": "?"})
            not_found = (
                ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
            )
            assert nobody == [not_found]
        assert await commit(world, 9, ("t", 0, 1), group_id="") == [ErrorCode.INVALID_GROUP_ID]

    in_world(tmp_path, body)


def test_metadata_may_be_null_and_must_not_be_too_long(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        assert await commit(world, 9, ("t", 0, 1), metadata=None) == [ErrorCode.NONE]
        (topic,) = await fetch(world, 9, {"t": [0]})
        assert topic.partitions[0].metadata == ""
        assert await commit(world, 9, ("t", 0, 1), metadata="x" * 4096) == [ErrorCode.NONE]
        too_long = await commit(world, 9, ("t", 0, 1), metadata="x" * 4097)
        assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]

    in_world(tmp_path, body)


def test_offsets_are_deleted(tmp_path: Path) -> None:
    def request(group_id: str) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in ("t", "u", "?")
            ],
        )

    async def body(world: World) -> None:
        missing = await world.ask(offset_delete.API, 0, request("nobody"))
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        joined = await world.stable()
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        await commit(world, 9, ("t", 0, 1), ("u", 0, 1), **member)
        answer = await world.ask(offset_delete.API, 0, request(G))
        assert answer.error_code == ErrorCode.NONE
        assert [(t.name, t.partitions[0].error_code) for t in answer.topics] == [
            ("t", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            ("u", ErrorCode.NONE),
            ("?", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert [topic.name for topic in await fetch(world, 9, None)] == ["t"]

    in_world(tmp_path, body)
