"""Proves that a replay that was cut off goes on without loss or double, or says why not."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.settings import WireSettings
from penstock.columns.decoding import Decoder
from penstock.columns.layout import COLUMNS
from penstock.pipelines.archives import replay_task
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replay_task import PartitionReplay, replay_partition
from penstock.records.compression import Codec
from tests.unit.pipelines.archives.rig import Crash, MemoryTopic, Record, TestArchive
from tests.unit.pipelines.archives.test_archived_rows import stretch

ROWS = [
    Record(
        offset,
        value=None if offset % 7 == 0 else b"value-%d" % offset,
        key=(None, b"", b"key")[offset % 3],
        headers=(("h", b"%d" % offset), ("h", None))[: offset % 3],
        # Times that neither ascend nor are all after 1970.
        seconds=-(2**31) if offset == 6 else (offset * 7) % 100,
    )
    for offset in range(0, 400, 2)
]


@pytest.fixture
def replay(tmp_path: Path) -> PartitionReplay:
    archive = TestArchive(tmp_path)
    archive.add(archive.receipt(0, 0, 200, rows=[row for row in ROWS if row.offset < 200]))
    archive.add(archive.receipt(0, 200, 401, rows=[row for row in ROWS if row.offset >= 200]))
    return PartitionReplay(
        stretch=stretch(tmp_path),
        topic="target",
        base=10,
        wire=WireSettings(bootstrap="unused:1"),
        codec=Codec.NONE,
    )


def run(replay: PartitionReplay, topic: MemoryTopic) -> int:
    return replay_partition(replay, cast(WireCluster, topic), pause=lambda seconds: None)


def held(topic: MemoryTopic, start: int = 10) -> list[dict[str, Any]]:
    decoder = Decoder(topic="target", partition=0, columns=COLUMNS, start=start, stop=topic.end)
    found = [batch for _, data in topic.batches for batch in decoder.decode(memoryview(data))]
    return [row for batch in [*found, *decoder.finish()] for row in batch.to_pylist()]


def is_whole(topic: MemoryTopic) -> bool:
    found = [
        (row["offset"], row["key"], row["value"], row["headers"], row["timestamp"])
        for row in held(topic)
    ]
    return found == [
        (
            10 + number,
            row.key,
            row.value,
            [{"key": name, "value": value} for name, value in row.headers] or None,
            row.time,
        )
        for number, row in enumerate(ROWS)
    ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_all_that_a_record_is_comes_back(replay: PartitionReplay, codec: Codec) -> None:
    topic = MemoryTopic(base=10)
    assert run(dataclasses.replace(replay, codec=codec), topic) == len(ROWS)
    assert is_whole(topic)
    assert topic.fetches == 0


def test_a_replay_that_was_cut_off_goes_on(
    replay: PartitionReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_task, "BATCH_BYTES_MAX", 300)
    topic = MemoryTopic(base=10)
    for _ in range(3):
        topic.batches_until_crash = 4
        with pytest.raises(Crash):
            run(replay, topic)
    topic.batches_until_crash = None
    assert 10 < topic.end < 10 + len(ROWS)
    assert run(replay, topic) == len(ROWS)
    assert is_whole(topic)
    # Once more changes nothing.
    assert run(replay, topic) == len(ROWS)
    assert is_whole(topic)


def test_what_retention_took_of_a_replay_is_not_written_again(
    replay: PartitionReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_task, "BATCH_BYTES_MAX", 300)
    topic = MemoryTopic(base=10)
    topic.batches_until_crash = 9
    with pytest.raises(Crash):
        run(replay, topic)
    topic.batches_until_crash = None
    topic.first = topic.batches[3][0]
    topic.batches = topic.batches[3:]
    assert run(replay, topic) == len(ROWS)
    assert topic.end == 10 + len(ROWS)


def test_a_record_of_somebody_else_is_noticed_by_the_next_attempt(
    replay: PartitionReplay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(replay_task, "BATCH_BYTES_MAX", 300)
    topic = MemoryTopic(base=10)
    topic.batches_until_crash = 2
    with pytest.raises(Crash):
        run(replay, topic)
    topic.batches_until_crash = None
    other = TestArchive(tmp_path / "other")
    other.add(other.receipt(0, 0, 1))
    foreign = dataclasses.replace(replay, stretch=stretch(other.root), base=topic.end)
    run(foreign, topic)
    end = topic.end
    with pytest.raises(
        ArchiveRefused, match="Another producer has written to partition 0 of topic"
    ):
        run(replay, topic)
    assert topic.end == end


def test_a_record_of_somebody_else_is_noticed_while_writing(
    replay: PartitionReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BusyTopic(MemoryTopic):
        def send(self, place: Any, batch: bytearray, count: int) -> None:
            super().send(place, batch, count)
            self.end += 1

    monkeypatch.setattr(replay_task, "_CHECK_BYTES", 1)
    topic = BusyTopic(base=10)
    with pytest.raises(ArchiveRefused, match="Another producer"):
        run(replay, topic)
    assert len(topic.batches) == 1


def test_a_target_that_was_made_anew_is_refused(replay: PartitionReplay) -> None:
    with pytest.raises(ArchiveRefused, match="was the topic deleted and created again"):
        run(replay, MemoryTopic(base=3))
