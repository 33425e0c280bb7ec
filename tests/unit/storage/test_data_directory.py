"""The data directory: made, locked, counted; and one clear sentence for each refusal."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from penstock.model.errors import StartRefused
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionId,
    PartitionIndex,
    ReplicaId,
    TopicId,
)
from penstock.storage.data_directory import DataDirectory, new_cluster_id
from penstock.storage.file_system import RealFileSystem
from penstock.storage.hard_state_blocks import MARK_1, PAGE_BYTES
from penstock.storage.hard_states import HardStates, StoredHardState
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss

NODE = BrokerId(0)
OTHER = DirectoryId("other")
TOPIC = TopicId(UUID("12345678123456781234567812345678"))


def open_directory(path: Path, node: int = 0) -> DataDirectory:
    return DataDirectory.open(path, node=BrokerId(node), file_system=RealFileSystem())


def refusal(path: Path, node: int = 0) -> str:
    with pytest.raises(StartRefused) as caught:
        open_directory(path, node)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_a_missing_directory_is_made_and_keeps_its_identity(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    first = open_directory(path)
    assert first.incarnation == 1
    assert len(first.directory_id) == 22
    assert (first.cluster_id, first.founders) == (None, ())
    first.close()
    second = open_directory(path)
    assert (second.directory_id, second.incarnation) == (first.directory_id, 2)
    assert second.metadata_directory == path / "metadata"
    assert second.hard_states_path == path / "hard_states"
    second.close()


def test_a_cluster_is_joined_once_and_for_good(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    founders = [ReplicaId(BrokerId(0), directory.directory_id), ReplicaId(BrokerId(1), OTHER)]
    directory.set_cluster("a cluster", founders)
    directory.set_cluster("a cluster", founders)
    with pytest.raises(AssertionError, match="for life"):
        directory.set_cluster("another", founders)
    directory.close()
    again = open_directory(tmp_path)
    assert (again.cluster_id, again.founders) == ("a cluster", tuple(founders))
    assert again.incarnation == 2
    again.close()


def test_directories_of_one_node_differ(tmp_path: Path) -> None:
    first, second = open_directory(tmp_path / "a"), open_directory(tmp_path / "b")
    assert first.directory_id != second.directory_id
    first.close()
    second.close()


def lose_votes(path: Path) -> None:
    data = bytearray((path / "hard_states").read_bytes())
    for position in range(40, len(data), PAGE_BYTES):
        data[position - 20] ^= 1
    (path / "hard_states").write_bytes(data)


@pytest.mark.parametrize("lose", [lose_votes, lambda path: (path / "hard_states").unlink()])
def test_a_directory_that_lost_votes_becomes_another_one(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    first = open_directory(tmp_path)
    founders = [ReplicaId(NODE, first.directory_id)]
    first.set_cluster("a cluster", founders)
    first.close()
    assert first.former_ids == ()
    ids = [first.directory_id]
    for loss in range(1, 3):
        lose(tmp_path)
        again = open_directory(tmp_path)
        assert again.directory_id not in ids
        assert again.former_ids == tuple(ids)
        assert (again.incarnation, again.cluster_id) == (1 + loss, "a cluster")
        assert again.founders == tuple(founders)
        again.close()
        ids.append(again.directory_id)
    last = open_directory(tmp_path)
    assert (last.directory_id, last.former_ids) == (ids[-1], tuple(ids[:-1]))
    HardStates.open(last.hard_states_path, file_system=RealFileSystem()).close()
    last.close()


def test_no_crash_brings_a_directory_that_lost_votes_back_as_itself() -> None:
    """Power is lost at each step: anyone who has the old id still has the damage to show for it."""
    path = Path("/data/node")
    key = PartitionId(TOPIC, PartitionIndex(0))
    for steps in range(100):
        disk = FaultFileSystem()
        directory = DataDirectory.open(path, node=NODE, file_system=disk)
        old = directory.directory_id
        states = HardStates.open(directory.hard_states_path, file_system=disk)
        for term in (3, 4):
            states.put(key, StoredHardState(term))
            states.flush()
        end = disk.size(directory.hard_states_path)
        for position in (end - PAGE_BYTES + 20, end - 2 * PAGE_BYTES + 20):
            disk.damage(directory.hard_states_path, position)
        disk.locks.clear()
        disk.steps_left = steps
        is_done = False
        with suppress(PowerLoss):
            DataDirectory.open(path, node=NODE, file_system=disk)
            is_done = True
        for found in (disk.after_kill(), *(disk.after_power_loss(seed) for seed in range(4))):
            found.locks.clear()
            again = DataDirectory.open(path, node=NODE, file_system=found)
            assert again.directory_id != old
            assert again.former_ids[0] == old
            # What is whole is kept: terms had come so far at least.
            kept = HardStates.open(again.hard_states_path, file_system=found).get(key)
            assert kept == StoredHardState(3, is_unsure=True)
        if is_done:
            assert steps > 5
            return
    raise AssertionError("it never came to the end")


def test_no_bad_bit_or_page_loses_the_identity(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(tmp_path)
    directory.set_cluster("a cluster", [ReplicaId(NODE, OTHER)])
    directory.close()
    file = tmp_path / "penstock.json"
    data = file.read_bytes()
    text = len(data[:PAGE_BYTES].rstrip())
    copies = (0, PAGE_BYTES)
    for position in (copy + place for copy in copies for place in (*range(0, text, 3), 4000)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        file.write_bytes(changed)
        stopped = DataDirectory.open_stopped(tmp_path, file_system=RealFileSystem())
        assert stopped._identity == directory._identity
        stopped.close()
    assert "one copy" in caplog.text
    for page in range(0, len(data), PAGE_BYTES):
        file.write_bytes(data[:page] + bytes(PAGE_BYTES) + data[page + PAGE_BYTES :])
        stopped = DataDirectory.open_stopped(tmp_path, file_system=RealFileSystem())
        assert stopped._identity == directory._identity
        stopped.close()


def test_an_identity_with_a_bad_bit_in_each_copy_is_refused(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.close()
    file = tmp_path / "penstock.json"
    name = directory.directory_id.encode()
    file.write_bytes(file.read_bytes().replace(name, bytes([name[0] ^ 1]) + name[1:]))
    assert "damaged" in refusal(tmp_path)


def test_a_directory_of_format_2_is_brought_up_to_date(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    old = {
        "format": 2,
        "node": 0,
        "directory_id": "an id",
        "incarnation": 7,
        "cluster_id": "a cluster",
        "founders": [[0, "an id"]],
    }
    (tmp_path / "penstock.json").write_text(json.dumps(old, indent=2))
    (tmp_path / "hard_states").write_bytes(MARK_1)
    directory = open_directory(tmp_path)
    assert (directory.directory_id, directory.incarnation) == ("an id", 8)
    assert (directory.cluster_id, directory.founders) == ("a cluster", ((0, "an id"),))
    assert directory.former_ids == ()
    assert b'"format": 3' in (tmp_path / "penstock.json").read_bytes()
    directory.close()


def test_the_format_of_a_preview_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    old = {"format": 1, "node": 0, "cluster_id": "x", "incarnation": 1}
    (tmp_path / "penstock.json").write_text(json.dumps(old))
    assert "a preview of Penstock wrote" in refusal(tmp_path)


def test_cluster_ids_differ() -> None:
    assert new_cluster_id() != new_cluster_id()


def test_a_second_node_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    first = open_directory(tmp_path)
    assert "in use" in refusal(tmp_path)
    first.close()
    open_directory(tmp_path).close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from penstock.storage.data_directory import DataDirectory\n"
        "from penstock.storage.file_system import RealFileSystem\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "DataDirectory.open(path, node=0, file_system=RealFileSystem())\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=100)
    directory = open_directory(tmp_path)
    assert directory.incarnation == 2
    directory.close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    for text in (newer := json.dumps({"format": 99, "anything": "else"}), newer * 2):
        (tmp_path / "penstock.json").write_text(text)
        assert "newer" in refusal(tmp_path)


def test_another_node_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path, 3).close()
    assert "belongs to node 3, not to node 4" in refusal(tmp_path, 4)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{]", '{"format": 2, "node": 0}'])
def test_a_damaged_identity_is_refused(tmp_path: Path, text: str) -> None:
    open_directory(tmp_path).close()
    (tmp_path / "penstock.json").write_text(text)
    assert "damaged" in refusal(tmp_path)


def test_data_without_an_identity_is_refused(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.partition_directory(TOPIC, 0).mkdir(parents=True)
    directory.close()
    (tmp_path / "penstock.json").unlink()
    assert "is missing" in refusal(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "not a directory" in refusal(tmp_path / "file")
    assert "not a directory" in refusal(tmp_path / "file" / "below")


class FailingFileSystem(RealFileSystem):
    def __init__(self, number: int) -> None:
        self._number = number

    def write_atomically(self, path: Path, data: object) -> None:
        raise OSError(self._number, os.strerror(self._number), str(path))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "may not write"),
        (errno.EPERM, "may not write"),
        (errno.EROFS, "read-only file system"),
        (errno.ENOSPC, "no space left"),
    ],
)
def test_a_directory_that_cant_be_written_is_refused(
    tmp_path: Path, number: int, words: str
) -> None:
    with pytest.raises(StartRefused, match=words):
        DataDirectory.open(tmp_path, node=NODE, file_system=FailingFileSystem(number))
    # The refusal gave the lock back.
    open_directory(tmp_path).close()


def test_a_directory_that_cant_be_made_is_refused() -> None:
    """On /proc even root can't make directories."""
    assert refusal(Path("/proc/penstock"))


def test_topics_are_listed_and_removed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    place = directory.partition_directory(TOPIC, 3)
    assert place == tmp_path / "topics" / TOPIC.hex / "3"
    place.mkdir(parents=True)
    (place / "file").write_text("x")
    assert directory.list_topic_directories() == [TOPIC]
    directory.remove_topic(TOPIC)
    directory.remove_topic(TOPIC)
    assert directory.list_topic_directories() == []
    assert list((tmp_path / "topics").iterdir()) == []
    directory.close()


def test_one_replica_can_be_removed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for partition in (1, 2):
        directory.partition_directory(TOPIC, partition).mkdir(parents=True)
    directory.remove_partition(TOPIC, 1)
    directory.remove_partition(TOPIC, 1)
    assert directory.log_directories()[1:] == [directory.partition_directory(TOPIC, 2)]
    left = directory.partition_directory(TOPIC, 2).with_name("7.deleted")
    left.mkdir()
    directory.close()
    open_directory(tmp_path).close()
    assert not left.exists()


def test_logs_are_listed_while_a_topic_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    directory.partition_directory(TOPIC, 0).mkdir(parents=True)
    monkeypatch.setattr(directory, "list_topic_directories", lambda: [TopicId(UUID(int=5)), TOPIC])
    assert directory.log_directories()[1:] == [directory.partition_directory(TOPIC, 0)]
    directory.close()


def test_what_a_crash_left_of_a_removal_is_removed_at_the_start(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    doomed = tmp_path / "topics" / f"{TOPIC.hex}.deleted"
    (doomed / "0").mkdir(parents=True)
    open_directory(tmp_path).close()
    assert not doomed.exists()


def test_incarnations_never_repeat_whatever_crash_comes_between() -> None:
    disk = FaultFileSystem()
    path = Path("/data/node")
    seen: list[int] = []
    for steps in [None, *range(12), None, *range(12), None]:
        disk.steps_left = steps
        disk.locks.clear()
        try:
            directory = DataDirectory.open(path, node=NODE, file_system=disk)
            seen.append(directory.incarnation)
        except PowerLoss:
            pass
        disk = disk.after_power_loss(len(seen) + (steps or 0))
    assert seen == sorted(set(seen))
    assert len(seen) >= 3
