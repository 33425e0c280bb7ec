"""Proves what a replica promises: safe before shown, refused when the disk fails, healed after."""

import asyncio
import errno
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import Offset, TopicId
from penstock.model.limits import Limits
from penstock.model.topic_config import FlushPolicy, TimestampType, TopicConfig
from penstock.records.batch import decode_records
from penstock.replication.positions import Position
from penstock.replication.replica import Replica
from penstock.storage.checkpoint import read_checkpoint
from penstock.storage.file_system import TEMPORARY_SUFFIX
from penstock.storage.layout import CHECKPOINT
from tests.waiting import until

from .rig import START_MS, TOPIC_ID, batch, read_values, run, running


async def test_a_batch_is_shown_only_after_it_is_safe(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        node.faults.writes_go_on.clear()
        appended = replica.append(batch(b"a", b"b"))
        assert (appended.base_offset, appended.append_time_ms) == (0, -1)
        assert (replica.high_watermark, replica.log_end_offset) == (0, 2)
        await asyncio.sleep(0.05)
        assert replica.read(0, 1_000) is None
        node.faults.writes_go_on.set()
        assert appended.done is not None
        await appended.done
        assert replica.high_watermark == 2
        assert read_values(replica) == [b"a", b"b"]


async def test_appends_that_pile_up_share_one_write(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        node.faults.writes_go_on.clear()
        first = replica.append(batch(b"0")).done
        await asyncio.sleep(0.02)
        others = {id(replica.append(batch(b"%d" % n)).done) for n in range(1, 50)}
        assert len(others) == 1
        assert id(first) not in others
        node.faults.writes_go_on.set()
        await replica.committed()
        assert read_values(replica) == [b"%d" % n for n in range(50)]


async def test_the_bytes_of_a_batch_are_copied_before_append_returns(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        buffer = bytearray(batch(b"mine"))
        replica.append(memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        await replica.committed()
        assert read_values(replica) == [b"mine"]


async def test_a_restart_goes_on_where_the_log_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        first_term = replica.term
        replica.append(batch(b"a"))
        await replica.committed()
    async with running(tmp_path) as node:
        replica = await node.replica()
        assert replica.term == first_term + 1
        assert (replica.high_watermark, read_values(replica)) == (1, [b"a"])
        assert replica.end_offset_for_epoch(first_term) == (first_term, 1)
        assert replica.append(batch(b"b")).base_offset == 1
        await replica.committed()
        assert replica.end_offset_for_epoch(first_term) == (first_term, 1)
        assert replica.end_offset_for_epoch(replica.term) == (replica.term, 2)
        assert replica.end_offset_for_epoch(replica.term + 1) == (-1, -1)


def test_a_leader_that_does_not_know_its_end_yet_ends_no_term_too_early() -> None:
    """Of what is committed it may know too little, and a consumer would hear of a truncation that
    never was."""

    async def scenario() -> None:
        async with running(Path(folder)) as node:
            replica = await node.replica()
            for _ in range(3):
                replica.append(batch(b"a"))
            await replica.committed()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Replica, "is_settled", False)
                patch.setattr(Replica, "high_watermark", Offset(1))
                assert replica.end_offset_for_epoch(replica.term) == (replica.term, 3)

    with TemporaryDirectory() as folder:
        run(scenario)


async def test_a_duplicate_waits_for_the_write_of_the_first(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        node.faults.writes_go_on.clear()
        sent = batch(b"a", producer_id=1, epoch=0, sequence=0)
        first = replica.append(sent)
        await asyncio.sleep(0.02)
        later = replica.append(batch(b"b", producer_id=1, epoch=0, sequence=1))
        again, later_again = (
            replica.append(sent),
            replica.append(batch(b"b", producer_id=1, epoch=0, sequence=1)),
        )
        assert (again.base_offset, later_again.base_offset) == (0, 1)
        assert again.done is first.done
        assert later_again.done is later.done
        node.faults.writes_go_on.set()
        await replica.committed()
        assert replica.append(sent).done is None
        assert read_values(replica) == [b"a", b"b"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_producers_are_known_after_a_restart(tmp_path: Path, is_clean: bool) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica()
            for sequence in range(7):
                replica.append(batch(b"x", producer_id=1, epoch=3, sequence=sequence))
            await replica.committed()
            if not is_clean:
                await node.close_replicas()
                _forget_clean_stop(node.directory.partition_directory(TOPIC_ID, 0))
        async with running(tmp_path) as node:
            replica = await node.replica()
            assert replica.append(batch(b"x", producer_id=1, epoch=3, sequence=5)).base_offset == 5
            with pytest.raises(Refused) as caught:
                replica.append(batch(b"x", producer_id=1, epoch=2, sequence=7))
            assert caught.value.reason is Reason.INVALID_PRODUCER_EPOCH
            assert replica.append(batch(b"x", producer_id=1, epoch=3, sequence=7)).base_offset == 7

    first_checkpoint: dict[str, bytes] = {}

    def _forget_clean_stop(directory: Path) -> None:
        """Puts the checkpoint of an empty log back, as if the process had been killed."""
        (directory / "checkpoint").write_bytes(first_checkpoint["data"])

    async def remember() -> None:
        async with running(tmp_path) as node:
            await node.replica()
            path = node.directory.partition_directory(TOPIC_ID, 0) / "checkpoint"
            first_checkpoint["data"] = path.read_bytes()

    run(remember)
    run(scenario)


async def test_a_full_disk_refuses_all_that_is_queued_and_heals(tmp_path: Path) -> None:
    """What was proposed may have reached others, so it is written once there is room; a producer
    that was refused and tries again is told so."""
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"kept", producer_id=1, epoch=0, sequence=0))
        await replica.committed()
        term = replica.term
        node.faults.write_error = errno.ENOSPC
        node.faults.writes_go_on.clear()
        failed = [replica.append(batch(b"late 1", producer_id=1, epoch=0, sequence=1))]
        await asyncio.sleep(0.02)
        failed.append(replica.append(batch(b"late 2", producer_id=1, epoch=0, sequence=2)))
        failed.append(replica.append(batch(b"late 3", producer_id=2, epoch=0, sequence=0)))
        node.faults.writes_go_on.set()
        for appended in failed:
            for commit in (appended.done, appended.stored):
                assert commit is not None
                with pytest.raises(Refused) as caught:
                    await commit
                assert caught.value.reason is Reason.STORAGE_ERROR
        await asyncio.sleep(0.05)
        assert (replica.high_watermark, replica.is_leader) == (1, True)
        assert read_values(replica) == [b"kept"]
        assert (await replica.list_offset(Position.LATEST)).offset == 1
        assert (replica.unflushed_bytes, node.pressure.total) == (0, 0)
        with pytest.raises(Refused) as caught:
            replica.append(batch(b"x"))
        assert caught.value.reason is Reason.STORAGE_ERROR
        node.faults.write_error = None
        await until(lambda: replica.high_watermark == 4)
        assert replica.term == term
        again = replica.append(batch(b"late 2", producer_id=1, epoch=0, sequence=2))
        assert (again.base_offset, again.done) == (2, None)
        replica.append(batch(b"new", producer_id=1, epoch=0, sequence=3))
        await replica.committed()
        assert read_values(replica) == [b"kept", b"late 1", b"late 2", b"late 3", b"new"]


async def test_records_can_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    """Alone nobody need agree; and the agreement itself could not be written."""
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(segment_bytes=100, retention_bytes=300))
        for number in range(10):
            replica.append(batch(b"x" * 50, producer_id=1, epoch=0, sequence=number))
            await replica.committed()
        # What deletes needs no room of its own, or makes it.
        node.faults.failing_suffix = ".log"
        node.faults.write_error = errno.ENOSPC
        failed = replica.append(batch(b"x" * 50, producer_id=1, epoch=0, sequence=10)).done
        assert failed is not None
        with pytest.raises(Refused):
            await failed
        assert await replica.delete_records(2) == 2
        await replica.maintain(node.clock.ms)
        assert 2 < replica.log_start_offset < 10
        assert replica.failing_because is not None
        node.faults.write_error = None
        await until(lambda: replica.high_watermark == 11)
        assert replica.failing_because is None
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(segment_bytes=100))
        again = replica.append(batch(b"x" * 50, producer_id=1, epoch=0, sequence=10))
        assert (again.base_offset, again.done) == (10, None)


async def test_a_close_makes_up_for_a_checkpoint_that_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log knows the state that the failed one should have held, but the disk does not."""
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(segment_ms=1_000))
        replica.append(batch(b"a", b"b", producer_id=1, epoch=0, sequence=0))
        await replica.committed()
        directory = node.directory.partition_directory(TOPIC_ID, 0)
        node.faults.failing_suffix = CHECKPOINT + TEMPORARY_SUFFIX
        node.faults.write_error = errno.ENOSPC
        # Closes the segment, and a checkpoint comes with that.
        await replica.maintain(node.clock.ms + 1_000)
        assert "can't be written" in caplog.text
        assert read_checkpoint(node.file_system, directory).saved_offset == 0
        node.faults.write_error = None
        await replica.close()
        assert read_checkpoint(node.file_system, directory).saved_offset == 2


async def test_a_failed_sync_stops_the_replica_and_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        other = await node.replica(topic_id=TopicId(UUID(int=78)))
        woken: list[bool] = []
        replica.on_advance(lambda: woken.append(True))
        node.faults.sync_error = errno.EIO
        appended = replica.append(batch(b"a"))
        assert appended.done is not None
        with pytest.raises(Refused) as caught:
            await appended.done
        assert caught.value.reason is Reason.STORAGE_ERROR
        node.faults.sync_error = None
        assert replica.stopped_because is not None
        assert woken
        for call in (
            lambda: replica.append(batch(b"b")),
            lambda: replica.read(0, 100),
            lambda: replica.end_offset_for_epoch(1),
        ):
            with pytest.raises(Refused) as caught:
                call()
            assert caught.value.reason is Reason.STORAGE_ERROR
        other.append(batch(b"fine"))
        await other.committed()


async def test_a_failed_sync_of_a_segment_that_ends_stops_the_replica_too(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(segment_bytes=100, flush_policy=FlushPolicy.OS_UNSAFE)
        replica = await node.replica(config)
        replica.append(batch(b"a" * 50))
        await replica.committed()
        node.faults.sync_error = errno.EIO
        replica.append(batch(b"b" * 50))
        with pytest.raises(Refused):
            await replica.committed()
        node.faults.sync_error = None
        assert replica.stopped_because is not None


async def test_too_much_unflushed_data_pauses_and_then_refuses(tmp_path: Path) -> None:
    limits = Limits(unflushed_bytes_per_partition_max=1_000, unflushed_bytes_max=100_000)
    async with running(tmp_path, limits) as node:
        replica = await node.replica()
        pressure = node.pressure
        node.faults.writes_go_on.clear()
        replica.append(batch(b"x" * 300, producer_id=1, epoch=0, sequence=0))
        assert not pressure.is_over
        replica.append(batch(b"x" * 300, producer_id=1, epoch=0, sequence=1))
        assert pressure.is_over
        for producer_id, sequence in ((1, 2), (2, 0)):
            with pytest.raises(Refused) as caught:
                replica.append(
                    batch(b"x" * 300, producer_id=producer_id, epoch=0, sequence=sequence)
                )
            assert caught.value.reason is Reason.THROTTLED
        relieved = asyncio.Event()
        pressure.on_relief(relieved.set)
        node.faults.writes_go_on.set()
        await relieved.wait()
        await replica.committed()
        assert pressure.total == 0
        with pytest.raises(Refused) as caught:
            replica.append(batch(b"x", producer_id=2, epoch=0, sequence=1))
        assert caught.value.reason is Reason.THROTTLED
        replica.append(batch(b"x" * 5_000))
        await replica.committed()


async def test_append_time_is_stamped_into_the_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
        replica = await node.replica(config)
        node.clock.ms = START_MS + 5
        appended = replica.append(batch(b"a", timestamp_ms=3))
        assert appended.append_time_ms == START_MS + 5
        await replica.committed()
        found = replica.read(0, 1_000)
        assert found is not None
        assert [record.timestamp_ms for record in decode_records(found.read())] == [START_MS + 5]
        found.release()


async def test_reads_are_bounded_by_the_log_and_by_the_term(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"a", b"b", b"c"))
        await replica.committed()
        assert read_values(replica, offset=1) == [b"a", b"b", b"c"]
        assert replica.read(3, 100) is None
        for offset in (-1, 4):
            with pytest.raises(Refused) as caught:
                replica.read(offset, 100)
            assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE
        with pytest.raises(Refused) as caught:
            replica.read(0, 100, epoch=replica.term - 1)
        assert caught.value.reason is Reason.FENCED_LEADER_EPOCH
        with pytest.raises(Refused) as caught:
            replica.read(0, 100, epoch=replica.term + 1)
        assert caught.value.reason is Reason.UNKNOWN_LEADER_EPOCH


async def test_offsets_are_found_by_name_and_by_time(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        assert await replica.list_offset(Position.MAX_TIMESTAMP) == (-1, -1, -1)
        for number in (10, 30, 20):
            replica.append(batch(b"x", timestamp_ms=START_MS + number))
        await replica.committed()
        term = replica.term
        assert await replica.list_offset(Position.LATEST) == (3, -1, term)
        assert await replica.list_offset(Position.EARLIEST) == (0, -1, term)
        assert await replica.list_offset(Position.EARLIEST_LOCAL) == (0, -1, term)
        for nowhere in (Position.LATEST_TIERED, Position.EARLIEST_PENDING_UPLOAD):
            assert await replica.list_offset(nowhere) == (-1, -1, -1)
        assert await replica.list_offset(Position.MAX_TIMESTAMP) == (1, START_MS + 30, term)
        assert await replica.list_offset(START_MS + 11) == (1, START_MS + 30, term)
        assert await replica.list_offset(START_MS + 31) == (-1, -1, -1)


async def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for value in (b"a", b"b", b"c"):
            replica.append(batch(value, producer_id=9, epoch=0, sequence=b"abc".index(value)))
        await replica.committed()
        assert await replica.delete_records(1) == 1
        assert await replica.delete_records(0) == 1
        with pytest.raises(Refused) as caught:
            await replica.delete_records(4)
        assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE
        with pytest.raises(Refused):
            replica.read(0, 100)
    async with running(tmp_path) as node:
        replica = await node.replica()
        assert replica.log_start_offset == 1
        assert await replica.delete_records(-1) == 3
        assert replica.append(batch(b"c", producer_id=9, epoch=0, sequence=2)).base_offset == 2
        assert replica.append(batch(b"d", producer_id=9, epoch=0, sequence=3)).base_offset == 3


async def test_an_append_after_a_deletion_waits_for_its_own_write(tmp_path: Path) -> None:
    """The deletion's own wait is over; anyone who appends then must not join it."""
    async with running(tmp_path) as node:
        replica = await node.replica()
        for _ in range(4):
            replica.append(batch(b"x"))
        await replica.committed()
        assert await replica.delete_records(1) == 1
        assert await replica.delete_records(2) == 2
        done = replica.append(batch(b"y")).done
        assert done is not None
        assert not done.is_settled
        await done
        assert replica.high_watermark == 5


async def test_deleting_records_while_producers_write_keeps_their_state(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        for sequence in range(200):
            replica.append(batch(b"x", producer_id=1, epoch=0, sequence=sequence))
            if sequence % 20 == 19:
                await replica.delete_records(-1)
        await replica.committed()
    async with running(tmp_path) as node:
        replica = await node.replica()
        assert replica.append(batch(b"x", producer_id=1, epoch=0, sequence=199)).done is None
        assert replica.append(batch(b"x", producer_id=1, epoch=0, sequence=200)).done


@pytest.mark.parametrize(
    ("policy", "flush_ms"),
    # The interval is so long that no slow machine comes to its end.
    [(FlushPolicy.INTERVAL_UNSAFE, 3_600_000), (FlushPolicy.OS_UNSAFE, 30)],
)
async def test_looser_policies_answer_before_the_sync(
    tmp_path: Path, policy: FlushPolicy, flush_ms: int
) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica(TopicConfig(flush_policy=policy, flush_ms=flush_ms))
        node.faults.sync_error = errno.EIO
        replica.append(batch(b"a"))
        await replica.committed()
        assert replica.high_watermark == 1
        await asyncio.sleep(0.15)
        assert replica.stopped_because is None
        node.faults.sync_error = None


async def test_what_is_answered_before_the_sync_is_synced_after_the_interval(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(flush_policy=FlushPolicy.INTERVAL_UNSAFE, flush_ms=30)
        replica = await node.replica(config)
        replica.append(batch(b"a"))
        await replica.committed()
        node.faults.sync_error = errno.EIO
        replica.append(batch(b"b"))
        await until(lambda: replica.stopped_because is not None)
        node.faults.sync_error = None


async def test_watches_hear_of_each_advance_until_they_are_cancelled(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        heard: list[int] = []
        watch = replica.on_advance(lambda: heard.append(replica.high_watermark))
        replica.append(batch(b"a"))
        await replica.committed()
        replica.append(batch(b"b"))
        await replica.committed()
        watch.cancel()
        watch.cancel()
        replica.append(batch(b"c"))
        await replica.committed()
        assert heard == [1, 2]


async def test_retention_and_checkpoints_come_with_maintenance(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(segment_bytes=200, retention_bytes=500)
        replica = await node.replica(config)
        for number in range(30):
            replica.append(batch(b"%d" % number * 20, producer_id=1, epoch=0, sequence=number))
            await replica.committed()
        assert replica.log_start_offset == 0
        await replica.maintain(node.clock.ms)
        assert 0 < replica.log_start_offset < 30
        assert replica.size_bytes < 1_000
        node.clock.ms += 10 * 24 * 3600 * 1000
        await replica.maintain(node.clock.ms)
        assert list(replica.producers()) == []


async def test_several_batches_are_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        with pytest.raises(Refused) as caught:
            replica.append(batch(b"a") + batch(b"b"))
        assert caught.value.reason is Reason.INVALID_RECORD
        damaged = bytearray(batch(b"b"))
        damaged[-1] ^= 1
        with pytest.raises(Refused):
            replica.append(batch(b"a") + bytes(damaged), many=True)
        assert replica.log_end_offset == 0
        replica.append(batch(b"a") + batch(b"b", b"c"), many=True)
        await replica.committed()
        assert read_values(replica) == [b"a", b"b", b"c"]
