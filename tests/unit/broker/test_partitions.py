"""Proves that partitions are found, made, opened, deleted, and that a damaged one stands alone."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.partitions import METADATA_PARTITION
from penstock.cluster.topic import Assignment, Topic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId, TopicName
from penstock.model.topic_config import TopicConfig
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import PATIENCE_S, TOPIC, TOPIC_ID, batch, read_values

OTHER_ID = TopicId(UUID(int=99))


def refusal(call: object) -> Reason:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    return caught.value.reason


async def test_partitions_are_found_by_name_and_by_id(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        partitions = node.partitions
        await node.create(TOPIC, TOPIC_ID, range(3), TopicConfig())
        assert partitions.get(TOPIC, 2) is partitions.get_by_id(TOPIC_ID, 2)
        assert len(partitions.all()) == 3
        unknown = Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(lambda: partitions.get(TOPIC, 3)) is unknown
        assert refusal(lambda: partitions.get(TopicName("none"), 0)) is unknown
        assert refusal(lambda: partitions.get_by_id(TOPIC_ID, 3)) is unknown
        assert refusal(lambda: partitions.get_by_id(OTHER_ID, 0)) is Reason.UNKNOWN_TOPIC_ID
        await node.create(TOPIC, TOPIC_ID, range(3, 5), TopicConfig())
        assert len(partitions.all()) == 5


class Catalogue:
    """A cluster with one topic, of which two partitions exist."""

    def topic(self, name: str) -> Topic | None:
        return self._topic if name == TOPIC else None

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._topic if topic_id == TOPIC_ID else None

    _topic = Topic(
        name=TOPIC,
        topic_id=TOPIC_ID,
        assignments=(Assignment((BrokerId(9),), ()),) * 2,
        configs={},
        internal=False,
    )


async def test_a_replica_elsewhere_is_told_from_no_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        partitions = node.partitions
        partitions.follow(Catalogue())
        elsewhere, unknown = (
            Reason.NOT_LEADER_OR_FOLLOWER,
            Reason.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert refusal(lambda: partitions.get(TOPIC, 1)) is elsewhere
        assert refusal(lambda: partitions.get_by_id(TOPIC_ID, 1)) is elsewhere
        assert refusal(lambda: partitions.get(TOPIC, 2)) is unknown
        assert refusal(lambda: partitions.get_by_id(TOPIC_ID, -1)) is unknown
        assert refusal(lambda: partitions.get(TopicName("none"), 0)) is unknown
        assert refusal(lambda: partitions.get_by_id(OTHER_ID, 0)) is Reason.UNKNOWN_TOPIC_ID


async def test_a_replica_that_moved_away_can_come_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        seen: list[tuple[str, int]] = []
        node.partitions.on_added(lambda r: seen.append(("+", r.partition.partition)))
        node.partitions.on_removed(lambda r: seen.append(("-", r.partition.partition)))
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        moved = node.partitions.get(TOPIC, 0)
        moved.append(batch(b"x"))
        await moved.committed()
        await node.partitions.remove(TOPIC_ID, [0])
        assert list(node.partitions.of_topic(TOPIC_ID)) == [1]
        assert node.partitions.find(moved.key) is None
        assert refusal(lambda: moved.append(batch(b"y"))) is Reason.NOT_LEADER_OR_FOLLOWER
        assert not node.directory.partition_directory(TOPIC_ID, 0).exists()
        founders = {0: [node.id]}
        await node.partitions.create(TOPIC, TOPIC_ID, [0], TopicConfig(), founders)
        returned = node.partitions.get(TOPIC, 0)
        assert returned.stopped_because is None
        assert returned.log_end_offset == 0
        assert not returned.is_leader, "it waits for the group that it left"
        assert seen == [("+", 0), ("+", 1), ("-", 0), ("+", 0)]
        await node.partitions.remove(TOPIC_ID, [0, 1])
        assert node.partitions.all() == []


async def test_making_a_partition_again_takes_over_what_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"kept"))
        await replica.committed()
    async with running(tmp_path) as node:
        half_made = node.directory.partition_directory(TOPIC_ID, 1)
        half_made.mkdir()
        (half_made / "checkpoint.tmp").write_bytes(b"torn")
        founders = {index: [node.id] for index in range(2)}
        await node.partitions.create(TOPIC, TOPIC_ID, [0, 1], TopicConfig(), founders)
        for replica in node.partitions.all():
            await replica.settled(PATIENCE_S)
        assert read_values(node.partitions.get(TOPIC, 0)) == [b"kept"]
        assert read_values(node.partitions.get(TOPIC, 1)) == []


async def test_when_one_partition_cannot_be_made_none_is_in_use(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.faults.write_error = errno.ENOSPC
        with pytest.raises(Refused) as caught:
            await node.create(TOPIC, TOPIC_ID, range(40), TopicConfig())
        assert caught.value.reason is Reason.STORAGE_ERROR
        assert node.partitions.all() == []
        node.faults.write_error = None
        await node.create(TOPIC, TOPIC_ID, range(40), TopicConfig())
        assert len(node.partitions.all()) == 40


async def test_a_damaged_partition_is_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        for replica in node.partitions.all():
            replica.append(batch(b"x"))
            await replica.committed()
        directory = node.directory.partition_directory(TOPIC_ID, 0)
    (segment,) = directory.glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-5])
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        damaged, sound = node.partitions.get(TOPIC, 0), node.partitions.get(TOPIC, 1)
        assert damaged.stopped_because is not None
        with pytest.raises(Refused, match=segment.name) as caught:
            damaged.read(0, 100)
        assert caught.value.reason is Reason.STORAGE_ERROR
        with pytest.raises(Refused):
            damaged.append(batch(b"y"))
        assert (damaged.high_watermark, damaged.size_bytes) == (0, 0)
        assert read_values(sound) == [b"x"]
        await damaged.maintain(node.clock.ms)
        await node.partitions.retire_topic(TOPIC_ID)
        await node.partitions.remove_topic_files(TOPIC_ID)
        assert not directory.exists()


async def test_a_deleted_topic_is_gone_at_once_and_its_waiters_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x"))
        await replica.committed()
        found = replica.read(0, 1_000)
        woken: list[bool] = []
        replica.on_advance(lambda: woken.append(True))
        await node.partitions.retire_topic(TOPIC_ID)
        assert woken
        assert node.replicas == {}, "the exchange does not know it any more"
        await node.partitions.remove_topic_files(TOPIC_ID)
        assert refusal(lambda: replica.append(batch(b"y"))) is (Reason.UNKNOWN_TOPIC_OR_PARTITION)
        assert node.directory.list_topic_directories() == []
        assert found is not None
        assert len(found.read()) == len(found)
        found.release()
        await node.partitions.retire_topic(TOPIC_ID)
        await node.create(TOPIC, OTHER_ID, [0], TopicConfig())
        assert node.partitions.get(TOPIC, 0).log_end_offset == 0


async def test_new_settings_act_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        node.partitions.set_config(TOPIC_ID, TopicConfig(max_message_bytes=10))
        assert refusal(lambda: replica.append(batch(b"x"))) is Reason.MESSAGE_TOO_LARGE


async def test_the_metadata_log_survives_and_is_no_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.partitions.open_metadata([node.id])
        await replica.settled(PATIENCE_S)
        replica.append_own(batch(b"x"))
        await replica.committed()
    async with running(tmp_path) as node:
        replica = await node.partitions.open_metadata([node.id])
        await replica.settled(PATIENCE_S)
        assert read_values(replica) == [b"x"]
        assert refusal(lambda: node.partitions.get(METADATA_PARTITION.topic, 0)) is (
            Reason.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert node.partitions.all() == []


async def test_a_clean_stop_leaves_nothing_to_read_again(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x", producer_id=4, epoch=0, sequence=0))
        await replica.committed()
    node = Node(tmp_path)
    replica = await node.replica()
    assert replica._log.state_offset == 1
    await node.stop()
