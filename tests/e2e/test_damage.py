"""Proves what happens to a log whose bytes were lost, flipped or could not be written."""

import json
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.protocol.kafka.error_codes import ErrorCode
from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.processes import Broker, run
from tests.e2e.wire import Wire
from tests.unit.storage.rot import lose_last_votes

# Each record is a batch of its own, so that a test can aim at one of them.
RECORDS = 10
VALUE = b"v" * 500
SEGMENT_BYTES = 1 << 20


def write_batches(broker: Broker, topic: str, count: int = RECORDS, value: bytes = VALUE) -> None:
    with Wire(broker.connect()) as wire:
        for _ in range(count):
            assert wire.produce(topic, value).error_code == ErrorCode.NONE


def segments(broker: Broker) -> list[Path]:
    """The segment files of the only topic that has records."""
    found = sorted((broker.data_dir / "topics").rglob("*.log"))
    return [path for path in found if path.stat().st_size]


def batch_starts(segment: Path) -> list[int]:
    """Where the batches of clients begin; an own entry of the broker ends before it begins."""
    data, position, found = segment.read_bytes(), 0, []
    while position + 12 <= len(data):
        if struct.unpack_from(">i", data, position + 23)[0] >= 0:
            found.append(position)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return found


def flip_bit(segment: Path, position: int) -> None:
    with segment.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def offsets_in(broker: Broker, topic: str, count: int) -> list[int | None]:
    found = BY_NAME["confluent-kafka"].consume(broker.bootstrap, topic, count)
    return [message.offset for message in found]


def watermarks(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return low, high


def assert_goes_on(broker: Broker, topic: str, kept: int) -> None:
    """Every kept record is there, and the next one takes the next offset."""
    assert watermarks(broker, topic) == (0, kept)
    assert offsets_in(broker, topic, kept) == list(range(kept))
    with Wire(broker.connect()) as wire:
        assert wire.produce(topic, b"after").base_offset == kept
    assert offsets_in(broker, topic, kept + 1) == list(range(kept + 1))


def assert_stopped(broker: Broker, topic: str, segment: Path, position: int) -> None:
    """The partition answers everything with a storage error that names file and position."""
    deadline = time.monotonic() + 60
    with Wire(broker.connect()) as wire:
        while wire.produce(topic, b"x").error_code != ErrorCode.KAFKA_STORAGE_ERROR:
            assert time.monotonic() < deadline, "the partition does not stop"
            time.sleep(0.2)
        answer = wire.produce(topic, b"x")
        assert wire.fetch(topic, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for text in (broker.stderr(), answer.error_message or ""):
        named = re.search(re.escape(segment.name) + r"\D+(\d+)", text)
        assert named, f"no file and position in {text!r}"
        assert int(named[1]) == position


def assert_others_go_on(broker: Broker) -> None:
    other = create_topic(broker.bootstrap)
    messages = [Message(value=b"fine")] * 3
    BY_NAME["kafka-python"].produce(broker.bootstrap, other, messages)
    assert offsets_in(broker, other, 3) == [0, 1, 2]


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker().start()


@pytest.fixture
def topic(broker: Broker) -> str:
    return create_topic(broker.bootstrap, segment_bytes=str(SEGMENT_BYTES))


@pytest.mark.parametrize("clean", [False, True])
def test_a_lone_node_that_lost_its_votes_goes_on_with_all_it_has(
    broker: Broker, topic: str, clean: bool
) -> None:
    """Nobody else could vote: it takes another id, and its partitions and metadata follow."""
    write_batches(broker, topic)
    for kept in (RECORDS, RECORDS + 1):
        if clean:
            assert broker.terminate() == 0
        else:
            broker.kill()
        lose_last_votes(broker.data_dir)
        broker.start()
        assert "comes back under a new identity" in broker.stderr()
        assert_goes_on(broker, topic, kept)
        assert_others_go_on(broker)


@pytest.mark.parametrize("missing", [1, 30, 400])
def test_a_truncated_tail_is_cut_off(broker: Broker, topic: str, missing: int) -> None:
    """Killed while writing: the last batch is not whole, all others stay."""
    write_batches(broker, topic)
    broker.kill()
    segment = segments(broker)[-1]
    os.truncate(segment, segment.stat().st_size - missing)
    broker.start()
    assert_goes_on(broker, topic, RECORDS - 1)


def test_a_tail_of_zeros_is_cut_off(broker: Broker, topic: str) -> None:
    """A file system may have grown the file before it wrote the data."""
    write_batches(broker, topic)
    broker.kill()
    with segments(broker)[-1].open("ab") as file:
        file.write(bytes(5_000))
    broker.start()
    assert_goes_on(broker, topic, RECORDS)


def test_a_flipped_bit_in_the_unflushed_last_batch_is_cut_off(broker: Broker, topic: str) -> None:
    write_batches(broker, topic)
    broker.kill()
    segment = segments(broker)[-1]
    flip_bit(segment, segment.stat().st_size - 100)
    broker.start()
    assert_goes_on(broker, topic, RECORDS - 1)


def test_a_bad_batch_with_a_valid_one_after_it_is_damage(broker: Broker, topic: str) -> None:
    write_batches(broker, topic)
    broker.kill()
    segment = segments(broker)[-1]
    start = batch_starts(segment)[5]
    flip_bit(segment, start + 100)
    broker.start()
    assert_stopped(broker, topic, segment, start)
    assert_others_go_on(broker)


def test_a_flipped_bit_below_the_flush_mark_is_damage(broker: Broker, topic: str) -> None:
    """After a clean stop everything is below the mark, even the very last batch."""
    write_batches(broker, topic)
    assert broker.terminate() == 0
    segment = segments(broker)[-1]
    start = batch_starts(segment)[-1]
    flip_bit(segment, start + 100)
    broker.start()
    assert_stopped(broker, topic, segment, start)
    assert_others_go_on(broker)


def test_a_log_cut_below_the_flush_mark_is_damage(broker: Broker, topic: str) -> None:
    write_batches(broker, topic)
    assert broker.terminate() == 0
    segment = segments(broker)[-1]
    start = batch_starts(segment)[-1]
    os.truncate(segment, start + 20)
    broker.start()
    with Wire(broker.connect()) as wire:
        assert wire.produce(topic, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert segment.name in broker.stderr()
    assert_others_go_on(broker)


def test_a_flipped_bit_in_an_old_segment_is_damage(broker: Broker, topic: str) -> None:
    """Closed segments are checked in the background after the start."""
    write_batches(broker, topic, 60, b"v" * 60_000)
    assert broker.terminate() == 0
    assert len(segments(broker)) >= 3
    segment = segments(broker)[0]
    start = batch_starts(segment)[3]
    flip_bit(segment, start + 30_000)
    broker.start()
    assert_stopped(broker, topic, segment, start)
    assert_others_go_on(broker)


def test_a_missing_segment_is_damage(broker: Broker, topic: str) -> None:
    write_batches(broker, topic, 60, b"v" * 60_000)
    assert broker.terminate() == 0
    segments(broker)[1].unlink()
    broker.start()
    with Wire(broker.connect()) as wire:
        assert wire.produce(topic, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert_others_go_on(broker)


@pytest.mark.parametrize("how", ["missing", "empty", "garbage"])
@pytest.mark.parametrize("kill", [False, True], ids=["after a stop", "after a kill"])
def test_a_lost_index_is_built_again(broker: Broker, topic: str, how: str, kill: bool) -> None:
    write_batches(broker, topic, 60, b"v" * 60_000)
    if kill:
        broker.kill()
    else:
        assert broker.terminate() == 0
    indexes = [*(broker.data_dir / "topics").rglob("*index")]
    assert indexes
    for index in indexes:
        if how == "missing":
            index.unlink()
        else:
            index.write_bytes(b"" if how == "empty" else os.urandom(1_001))
    broker.start()
    assert offsets_in(broker, topic, 60) == list(range(60))
    found = BY_NAME["aiokafka"].consume(broker.bootstrap, topic, 1, offset=37)
    assert found[0].offset == 37
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    by_time = consumer.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=60)
    consumer.close()
    assert by_time[0].offset == 0
    assert_goes_on(broker, topic, 60)


@pytest.mark.parametrize(
    "clean",
    [
        pytest.param(True, id="after a stop", marks=pytest.mark.slow),
        pytest.param(False, id="after a kill"),
    ],
)
def test_an_operator_cuts_the_damage_out(broker: Broker, topic: str, clean: bool) -> None:
    """What lies before the bad batch is kept, and the partition takes records again."""
    write_batches(broker, topic)
    if clean:
        assert broker.terminate() == 0
    else:
        broker.kill()
    segment = segments(broker)[-1]
    start = batch_starts(segment)[6]
    assert run("log", "check", str(broker.data_dir)).returncode == 0
    flip_bit(segment, start + 100)

    checked = run("log", "check", str(broker.data_dir), "--json")
    assert checked.returncode == 1
    (damage,) = json.loads(checked.stdout)
    assert (Path(damage["file"]).name, damage["position"]) == (segment.name, start)
    refused = run("log", "repair", str(broker.data_dir), stdin="n\n")
    assert refused.returncode != 0
    repaired = run("log", "repair", str(broker.data_dir), "--yes")
    assert repaired.returncode == 0, repaired.stderr
    assert list(segment.parent.glob("*.cut")), "what was cut is put aside"
    assert run("log", "check", str(broker.data_dir)).returncode == 0
    broker.start()
    assert_goes_on(broker, topic, 6)
    assert run("log", "check", str(broker.data_dir)).returncode == 1, "a running node is left alone"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB with a ballast file that takes half of it."""
    if os.getuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system needs root")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "penstock-test", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"mount failed: {mounted.stderr}")
    (path / "ballast").write_bytes(bytes(32 << 20))
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill_up(broker: Broker, topic: str) -> tuple[int, int]:
    """Produce until the broker says that storage failed; the records that it took, and the code."""
    with Wire(broker.connect()) as wire:
        for taken in range(1_000):
            if code := wire.produce(topic, os.urandom(200_000)).error_code:
                return taken, code
    raise AssertionError("the disk never filled up")


def test_a_full_disk_refuses_writes_serves_reads_and_heals(
    make_broker: MakeBroker, small_disk: Path
) -> None:
    broker = make_broker(data_dir=small_disk / "data").start()
    topic = create_topic(broker.bootstrap, segment_bytes=str(8 << 20))
    taken, code = fill_up(broker, topic)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert taken > 50
    assert broker.is_running
    assert offsets_in(broker, topic, taken) == list(range(taken))
    with pytest.raises(KafkaException):
        create_topic(broker.bootstrap, partitions=1_000)

    (small_disk / "ballast").unlink()
    deadline = time.monotonic() + 60
    with Wire(broker.connect()) as wire:
        while (answer := wire.produce(topic, b"healed")).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, "the partition does not heal"
            time.sleep(0.2)
    # What met the full disk was refused, as an error after which a producer tries again: it may
    # come about once there is room, behind everything that was acknowledged.
    assert answer.base_offset >= taken
    broker.kill()
    broker.start()
    assert_goes_on(broker, topic, answer.base_offset + 1)
