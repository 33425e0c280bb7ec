"""Sizes on disk: healthy partitions together, stopped ones apart."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.log_directories import LogDirectories, LogDirectory
from penstock.broker.topics import NewTopic
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from tests.unit.broker.fake_disk import AtOnce, Disk, Node


def described(
    wanted: Collection[TopicPartition] | None, *, damaged: bool = False, unreadable: bool = False
) -> list[LogDirectory]:
    def usage(path: Path) -> SimpleNamespace:
        if unreadable:
            raise OSError("gone")
        return SimpleNamespace(total=1000, free=400)

    async def body() -> list[LogDirectory]:
        node = await Node.start(Disk())
        await node.topics.create([NewTopic(name="t", partitions=2, configs={})])
        if damaged:
            node.partitions.get("t", 1).stopped_because = OSError("damaged")
        directories = LogDirectories(
            partitions=node.partitions,  # type: ignore[arg-type]
            directory=Path("/data"),
            disk_usage=usage,
            executor=AtOnce(),
        )
        return await directories.describe(wanted)

    return asyncio.run(body())


def test_all_partitions_with_their_sizes() -> None:
    (whole,) = described(None)
    assert (whole.path, whole.is_damaged) == ("/data", False)
    assert (whole.total_bytes, whole.usable_bytes) == (1000, 400)
    assert whole.topics == {"t": [(0, 100), (1, 101)]}


def test_the_path_is_absolute_wherever_the_node_was_started() -> None:
    directories = LogDirectories(
        partitions=cast("Any", None),
        directory=Path("data"),
        disk_usage=cast("Any", None),
        executor=AtOnce(),
    )
    assert directories.path == str(Path.cwd() / "data")


def test_only_the_partitions_asked_for() -> None:
    asked = TopicPartition(TopicName("t"), PartitionIndex(1))
    unknown = TopicPartition(TopicName("u"), PartitionIndex(0))
    (whole,) = described([asked, unknown])
    assert whole.topics == {"t": [(1, 101)]}
    (nothing,) = described([])
    assert nothing.topics == {}


def test_a_stopped_partition_shows_as_damaged_beside_the_healthy_ones() -> None:
    whole, broken = described(None, damaged=True)
    assert whole.topics == {"t": [(0, 100)]}
    assert broken.is_damaged
    assert broken.path.startswith("/data/topics/")
    assert broken.topics == {"t": [(1, 0)]}


def test_a_disk_that_can_not_be_asked_shows_as_damaged() -> None:
    (whole,) = described(None, unreadable=True)
    assert whole.is_damaged
    assert whole.topics == {}
