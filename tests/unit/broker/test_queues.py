"""Queues as consumers see them, on one node: leases, acknowledgements, waits and limits."""

import asyncio
import errno
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.broker import polling
from penstock.broker import queues as queues_module
from penstock.broker.later import Later
from penstock.broker.queues import AckBatch, AckType, QueueOffset
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.commands import AcquiredRange
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue
from penstock.records.batch import parse_header
from penstock.replication.replica import Replica
from penstock.storage.log import Log, Scrubbed
from tests.unit.broker.queue_rig import (
    EARLIEST,
    TOPIC,
    G,
    M,
    N,
    QueueNode,
    data_of,
    leased,
    turns,
)
from tests.unit.lone_node import run
from tests.unit.storage.rot import misplace_batch
from tests.waiting import until

OTHERS = GroupId("others")


def test_a_record_is_leased_to_one_consumer_and_acknowledged(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a", b"b", b"c")
        answer = await node.poll()
        assert leased(answer) == [b"a", b"b", b"c"]
        assert list(answer.ranges) == [AcquiredRange(0, 2, 1)]
        assert (await node.poll_now(N)).ranges == (), "another member gets nothing"
        assert await node.acknowledge(0, 0) is None
        assert await node.acknowledge(1, 2, AckType.RELEASE) is None
        again = await node.poll(N)
        assert leased(again) == [b"b", b"c"]
        assert list(again.ranges) == [AcquiredRange(1, 2, 2)]
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("is_killed", [True, False])
def test_leases_and_attempts_survive_a_restart(tmp_path: Path, is_killed: bool) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a", b"b", b"c")
        await node.poll()
        assert await node.acknowledge(0, 0) is None
        assert await node.acknowledge(1, 1, AckType.RELEASE) is None
        if is_killed:
            node.kill()
        else:
            await node.stop()
        again = await QueueNode.begin(tmp_path)
        answer = await again.poll(N)
        assert list(answer.ranges) == [AcquiredRange(1, 1, 2)], "2 is leased, 0 is done"
        assert await again.acknowledge(2, 2) is None, "its member has it still"
        await again.stop()

    run(scenario)


def test_latest_stays_where_it_was_when_the_group_first_polled(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.set_group(**{"share.auto.offset.reset": "latest"})
        await node.send(b"before")
        assert (await node.poll_now()).ranges == ()
        await until(lambda: node.queues.lead(G, node.topic_id, 0).is_open)
        await node.send(b"after")
        node.kill()
        again = await QueueNode.begin(tmp_path)
        assert leased(await again.poll()) == [b"after"]
        await again.stop()

    run(scenario)


def test_a_group_can_start_a_while_ago(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.set_group(**{"share.auto.offset.reset": "by_duration:PT1H"})
        await node.send(b"of the year 2023")
        answer = node.ask()
        await until(lambda: node.queues.lead(G, node.topic_id, 0).is_open)
        assert node.queues.lead(G, node.topic_id, 0).next_offset() == 1
        answer.cancel()
        await node.stop()

    run(scenario)


def test_a_start_that_the_group_gives_beats_the_setting(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.set_group(**{"share.auto.offset.reset": "latest"})
        await node.send(b"a", b"b")
        await node.queues.initialize(G, {node.topic_id: {0: 0}})
        await node.queues.initialize(G, {node.topic_id: {0: 1}})
        assert leased(await node.poll()) == [b"a", b"b"], "the first word counts"
        await node.stop()

    run(scenario)


def test_a_topic_that_is_made_again_begins_without_the_old_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        await node.poll()
        old = node.topic_id
        waiting = node.ask(N)
        await turns()
        await node.topics.delete([old])
        (answer,) = await waiting
        assert answer.reason is Reason.UNKNOWN_TOPIC_ID
        await node.create(TOPIC, partitions=1)
        await node.make_queues()
        await node.send(b"new")
        assert leased(await node.poll(N)) == [b"new"]
        found = await node.queues.describe_offsets(G, None)
        await until(lambda: old != node.topic_id)
        assert list(found) == [(node.topic_id, 0)], "nothing of the old topic is stored"
        await node.stop()

    run(scenario)


def test_records_that_were_deleted_do_not_hold_up_the_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        for value in (b"a", b"b", b"c"):
            await node.send(value)
        await node.poll(records_max=1, batch_size=1)
        await node.replica().delete_records(2)
        assert leased(await node.poll(N)) == [b"c"]
        refused = await node.acknowledge(0, 0)
        assert refused is None, "a late word about what is gone changes nothing"
        found = await node.queues.describe_offsets(G, {node.topic_id: [0]})
        assert found[node.topic_id, 0] == QueueOffset(
            start=2, leader_epoch=node.replica().term, lag=1, delivery_complete_count=0
        )
        await node.stop()

    run(scenario)


def test_who_did_not_join_makes_no_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        stranger = GroupId("nobody")
        answer = await node.poll(group_id=stranger)
        assert answer.reason is Reason.GROUP_ID_NOT_FOUND
        assert await node.queues.describe_offsets(stranger, None) == {}
        for odd in (GroupId(""), GroupId("g" * 10_000)):
            answer = await node.poll(group_id=odd)
            assert answer.reason is Reason.GROUP_ID_NOT_FOUND, "nobody can join it"
        await node.make_queues(stranger)
        await node.set_group(stranger, **{"share.auto.offset.reset": "earliest"})
        assert leased(await node.poll(group_id=stranger)) == [b"a"], "once somebody has joined"
        await node.stop()

    run(scenario)


# Waiting


def test_a_poll_waits_for_a_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        waiting = node.ask()
        await turns()
        assert not waiting.is_settled
        await node.send(b"a")
        (answer,) = await waiting
        assert leased(answer) == [b"a"]
        await node.stop()

    run(scenario)


def test_a_poll_that_waits_gets_what_another_gives_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        await node.poll()
        waiting = node.ask(N)
        await turns()
        await node.queues.release(G, M)
        (answer,) = await waiting
        assert list(answer.ranges) == [AcquiredRange(0, 0, 2)], "the attempt counts, as in Kafka"
        await node.stop()

    run(scenario)


def test_members_that_are_gone_from_their_group_have_no_leases(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, partitions=2)
        await node.send(b"a")
        await node.send(b"b", partition=1)
        assert leased(await node.poll(M)) == [b"a"]
        assert leased(await node.poll(N, partitions=[1])) == [b"b"]
        waiting = node.ask(MemberId("another"))
        await turns()
        await node.queues.members_gone(G, [M, MemberId("who had none")])
        (answer,) = await waiting
        assert list(answer.ranges) == [AcquiredRange(0, 0, 2)]
        refused = await node.acknowledge(0, 0)
        assert refused is not None
        assert refused.reason is Reason.INVALID_RECORD_STATE
        kept = node.queues.lead(G, node.topic_id, 1)
        assert kept.holders() == {N}, "others keep what they have"
        await node.stop()

    run(scenario)


class Unwalked(dict[QueueKey, LedQueue]):
    """Queues that are found by name, and never gone through."""

    def _walk(self) -> Any:
        raise AssertionError("somebody goes through all queues")

    __iter__ = items = keys = values = _walk


def test_who_leaves_a_group_does_not_cost_a_look_at_the_queues_of_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.make_queues(OTHERS)
        await node.set_group(OTHERS, **EARLIEST)
        await node.send(b"a")
        for group_id in (G, OTHERS):
            assert leased(await node.poll(group_id=group_id)) == [b"a"]
        queues = node.queues
        led, queues._led = queues._led, Unwalked(queues._led)
        await queues.release(G, M)
        assert leased(await node.poll(N)) == [b"a"]
        await queues.members_gone(G, [N])
        waiting = node.ask(M, records_max=1)
        assert leased((await waiting)[0]) == [b"a"]
        await node.set_group(G, **EARLIEST)
        assert queues.lead(OTHERS, node.topic_id, 0).holders() == {M}, "others keep what they have"
        queues._led = led
        await node.topics.delete([TOPIC])
        await until(lambda: not queues._led)
        assert (queues._of_group, queues._of_partition) == ({}, {})
        await node.stop()

    run(scenario)


def test_a_lease_that_runs_out_wakes_a_poll(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, group_share_min_record_lock_duration_ms="1000")
        await node.set_group(
            **{"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
        )
        assert node.queues.lock_duration_ms(G) == 1_000
        await node.send(b"a")
        await node.poll()
        answer = await node.poll(N)
        assert list(answer.ranges) == [AcquiredRange(0, 0, 2)]
        await node.stop()

    run(scenario)


def test_a_poll_ends_empty_when_its_time_is_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        answer = await node.poll(wait_ms_max=1)
        assert (answer.reason, answer.records, answer.ranges) == (None, None, ())
        await node.stop()

    run(scenario)


def test_a_poll_waits_for_as_many_bytes_as_it_wants(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        waiting = node.ask(bytes_min=1_000)
        await turns(100)
        assert not waiting.is_settled
        await node.send(b"b" * 2_000)
        (answer,) = await waiting
        assert leased(answer) == [b"a", b"b" * 2_000]
        await node.stop()

    run(scenario)


def test_a_poll_that_wants_many_bytes_leaves_the_index_to_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a" * 2_000)
        loaded, read = [], Replica.read

        def read_loaded(replica: Replica, offset: int, bytes_max: int) -> FileRange | None:
            assert offset in loaded, "the loop would wait for the disk"
            return read(replica, offset, bytes_max)

        monkeypatch.setattr(Replica, "needs_index", lambda _, offset: offset not in loaded)
        monkeypatch.setattr(Replica, "load_index", lambda _, offset: loaded.append(offset))
        monkeypatch.setattr(Replica, "read", read_loaded)
        answer = await node.poll(bytes_min=1_000)
        assert leased(answer) == [b"a" * 2_000]
        await node.stop()

    run(scenario)


def test_each_poll_that_waits_gets_its_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        polls = [node.ask(M, records_max=1, batch_size=1, is_exact=True) for _ in range(20)]
        await until(lambda: node.queues.lead(G, node.topic_id, 0).is_open)
        await turns()
        await node.send(*(b"%d" % number for number in range(20)))
        answers = [answer for poll in polls for answer in await poll]
        assert [leased(answer) for answer in answers] == [[b"%d" % at] for at in range(20)]
        await node.stop()

    run(scenario)


def test_no_partition_starves_beside_a_full_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, partitions=3)
        for _ in range(20):
            await node.send(b"x" * 1_000, partition=0)
        await node.send(b"y", partition=1)
        await node.send(b"z", partition=2)
        await node.open(0, 1, 2)
        await node.queues.release(G, M)
        answers = await node.ask(partitions=[0, 1, 2], bytes_max=6_000)
        assert [len(leased(answer)) for answer in answers][1:] == [1, 1]
        assert len(answers[0].ranges) == 1
        await node.stop()

    run(scenario)


def test_a_poll_whose_client_is_gone_gives_back_what_it_got(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.open(0)
        await node.send(b"a")
        node.faults.writes_go_on.clear()
        poll = node.ask()
        queue = node.queues.lead(G, node.topic_id, 0)
        await until(lambda: not queue.has_news)
        poll.cancel()
        node.faults.writes_go_on.set()
        assert list((await node.poll(N)).ranges) == [AcquiredRange(0, 0, 2)]
        await node.stop()

    run(scenario)


def test_an_answer_that_nobody_waits_for_any_more_is_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.open(0)
        await node.send(b"a")
        poll = node.ask()
        # In the turn in which it ends, before whoever asked has heard of it.
        poll.task.add_done_callback(lambda _: Later.cancel(poll))
        poll.task.remove_done_callback(poll._finish)
        poll.task.add_done_callback(poll._finish)
        await until(lambda: poll.task.done() and poll.is_settled)
        assert list((await node.poll(N)).ranges) == [AcquiredRange(0, 0, 2)]
        await node.stop()

    run(scenario)


# What is sent


def test_batches_are_sent_as_they_lie_in_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a", b"b")
        await node.send(b"c")
        found = node.replica().read(0, 1_000_000)
        assert found is not None
        answer = await node.poll()
        assert isinstance(answer.records, FileRange)
        assert data_of(answer) == found.read()
        found.release()
        await node.stop()

    run(scenario)


def test_few_records_of_a_large_batch_are_sent_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        values = [b"%04d" % number + b"x" * 1_000 for number in range(100)]
        await node.send(*values)
        await node.poll()
        await node.acknowledge(0, 6)
        await node.acknowledge(7, 8, AckType.RELEASE)
        await node.acknowledge(9, 9)
        answer = await node.poll(N)
        assert isinstance(answer.records, bytes)
        assert len(answer.records) < 3_000
        header = parse_header(answer.records)
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 99, 2)
        assert leased(answer) == values[7:9]
        await node.stop()

    run(scenario)


def test_records_that_can_not_be_sent_are_not_leased_and_their_attempt_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "a bad sector")

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"small")
        assert leased(await node.poll(N)) == [b"small"]
        await node.send(*(b"%04d" % number + b"x" * 1_000 for number in range(100)))
        await node.poll()
        await node.acknowledge(8, 9, AckType.RELEASE)
        with monkeypatch.context() as patching:
            patching.setattr(polling, "build", fail)
            answer = await node.poll(N)
        assert (answer.reason, answer.ranges) == (Reason.STORAGE_ERROR, ())
        answer = await node.poll(N)
        assert list(answer.ranges) == [AcquiredRange(8, 9, 2)], "nobody had its second attempt"
        assert len(leased(answer)) == 2
        assert await node.acknowledge(0, 0, member_id=N) is None, "it keeps what it had before"
        await node.stop()

    run(scenario)


def test_a_poll_can_ask_for_an_exact_number(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(*(b"%d" % number for number in range(10)))
        first = await node.poll(M, records_max=4, is_exact=True)
        second = await node.poll(N, records_max=4, is_exact=True)
        assert leased(first) == [b"0", b"1", b"2", b"3"]
        assert leased(second) == [b"4", b"5", b"6", b"7"]
        await node.stop()

    run(scenario)


# Refusals and limits


def test_a_partition_that_is_not_here_is_refused_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        assert (await node.poll(topic_id=TopicId(uuid4()))).reason is Reason.UNKNOWN_TOPIC_ID
        unknown = await node.poll(partitions=[7])
        assert unknown.reason is Reason.UNKNOWN_TOPIC_OR_PARTITION
        refused = await node.acknowledge(0, 0, partition=7)
        assert refused is not None
        assert refused.reason is Reason.UNKNOWN_TOPIC_OR_PARTITION
        await node.stop()

    run(scenario)


def test_another_member_can_not_acknowledge_and_nothing_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        await node.poll()
        refused = await node.acknowledge(0, 0, member_id=N)
        assert refused is not None
        assert refused.reason is Reason.INVALID_RECORD_STATE
        assert await node.acknowledge(0, 0) is None
        await node.stop()

    run(scenario)


def test_a_leader_that_nobody_confirms_refuses_no_acknowledgement(tmp_path: Path) -> None:
    """The next leader may have leased what this one knows nothing of."""

    async def confirm() -> None:
        raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "somebody else leads")

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(b"a")
        await node.poll()
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(Replica, "confirm", lambda _: confirm())
            for offset in (0, 7):
                refused = await node.acknowledge(offset, offset, member_id=N)
                assert refused is not None
                assert refused.reason is Reason.NOT_LEADER_OR_FOLLOWER
            refused = await node.acknowledge(0, 0, AckType.RENEW)
            assert refused is not None, "it may be somebody else's"
            assert refused.reason is Reason.NOT_LEADER_OR_FOLLOWER
            assert await node.acknowledge(0, 0) is None, "what is stored was confirmed by that"
        await node.stop()

    run(scenario)


def test_a_full_disk_voids_the_lease_and_heals(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.open(0)
        await node.send(b"a")
        node.faults.write_error = errno.ENOSPC
        answer = await node.poll(wait_ms_max=1)
        assert (answer.reason, answer.records, answer.ranges) == (None, None, ())
        assert answer.detail
        node.faults.write_error = None
        # The disk takes it in the end, and so it is a lease after all.
        await node.queues.release(G, M, [(node.topic_id, 0)])
        assert list((await node.poll(N)).ranges) == [AcquiredRange(0, 0, 2)]
        await node.stop()

    run(scenario)


def test_queues_that_nobody_uses_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "QUEUES_MAX", 2)

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, partitions=4)
        await node.send(b"a", partition=1)
        await node.poll_now(partitions=[0])
        await node.poll(partitions=[1])
        await until(lambda: node.queues.lead(G, node.topic_id, 0).is_idle)
        assert (await node.poll_now(partitions=[2])).reason is None, "0 is closed for it"
        busy = node.ask(partitions=[2])
        await turns()
        assert "2 queues" in (await node.poll_now(partitions=[3])).detail
        refused = await node.acknowledge(0, 0, partition=3)
        assert refused is not None
        assert refused.reason is Reason.THROTTLED
        busy.cancel()
        assert await node.acknowledge(0, 0, partition=1) is None, "what is leased stays"
        await node.stop()

    run(scenario)


def test_a_poll_of_more_queues_than_there_may_be_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "QUEUES_MAX", 2)

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, partitions=4)
        answers = await node.ask(partitions=[0, 1, 2, 3], wait_ms_max=300)
        assert [answer.reason for answer in answers] == [None] * 4
        await node.stop()

    run(scenario)


def test_too_many_polls_are_answered_without_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "POLLS_WAITING_MAX", 1)

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        first = node.ask()
        await turns()
        assert (await node.poll(N)).ranges == ()
        assert not first.is_settled
        first.cancel()
        await node.stop()

    run(scenario)


def test_a_node_that_stops_answers_its_polls(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        waiting = node.ask()
        await until(lambda: node.queues.lead(G, node.topic_id, 0).is_open)
        _, (answer,) = await asyncio.gather(node.stop(), waiting)
        assert not answer.ranges
        with pytest.raises(Refused, match="shutting down"):
            node.queues.lead(G, node.topic_id, 0)

    run(scenario)


# Operators


def test_the_offsets_of_a_group_are_described_moved_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        await node.send(*(b"%d" % number for number in range(10)))
        place, term = (node.topic_id, 0), node.replica().term
        await node.poll()
        busy = await node.queues.alter_offsets(G, {place: 5})
        refused = busy[place]
        assert refused is not None
        assert refused.reason is Reason.NON_EMPTY_GROUP
        deleted = await node.queues.delete_offsets(G, [node.topic_id])
        assert deleted[node.topic_id] is not None
        acks = [AckBatch(first=0, last=0, types=(1,)), AckBatch(first=2, last=4, types=(1,))]
        await node.queues.acknowledge(G, M, {place: acks})
        await node.queues.release(G, M)
        found = await node.queues.describe_offsets(G, None)
        assert found == {
            place: QueueOffset(start=1, leader_epoch=term, lag=6, delivery_complete_count=3)
        }
        assert await node.queues.alter_offsets(G, {place: 8}) == {place: None}
        assert leased(await node.poll(N)) == [b"8", b"9"], "what the leader knew is void"
        await node.queues.release(G, N)
        assert await node.queues.alter_offsets(G, {place: 10}) == {place: None}
        assert leased(await node.poll(N, wait_ms_max=1)) == []
        assert await node.queues.alter_offsets(G, {place: 0}) == {place: None}
        # Its leader had nothing to write, and so no write that is refused.
        assert len(leased(await node.poll(N))) == 10
        await node.queues.release(G, N)
        assert await node.queues.delete_offsets(G, [node.topic_id]) == {node.topic_id: None}
        assert await node.queues.describe_offsets(G, None) == {}
        await node.stop()

    run(scenario)


def test_what_is_not_known_of_a_group_is_said_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path)
        nobody, unknown = GroupId("nobody"), TopicId(uuid4())
        found = await node.queues.describe_offsets(nobody, {node.topic_id: [0], unknown: [0]})
        never = QueueOffset(start=-1, leader_epoch=-1, lag=-1, delivery_complete_count=0)
        assert found[node.topic_id, 0] == never
        missing = found[unknown, 0]
        assert isinstance(missing, Refused)
        assert missing.reason is Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert await node.queues.delete_offsets(nobody, [unknown]) == {unknown: None}
        await node.stop()

    run(scenario)


def test_a_batch_that_is_not_in_its_place_is_leased_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The poll is faster than the scrub.
    monkeypatch.setattr(Log, "scrub", lambda log, *_: Scrubbed(log.end_offset, log.end_offset, 0))

    async def fill() -> None:
        node = await QueueNode.begin(tmp_path, log_index_interval_bytes="100")
        for number in range(9):
            await node.send(b"%d" % number * 100)
        await node.stop()

    async def scenario() -> None:
        node = await QueueNode.begin(tmp_path, log_index_interval_bytes="100")
        assert node.replica().stopped_because is None
        answer = await node.poll()
        assert answer.reason is Reason.STORAGE_ERROR
        assert "instead of" in str(node.replica().stopped_because)
        await node.stop()

    run(fill)
    misplace_batch(max(tmp_path.rglob("topics/*/0/*.log"), key=lambda path: path.stat().st_size))
    run(scenario)
