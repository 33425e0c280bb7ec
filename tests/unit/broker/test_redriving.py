"""Dead letters come back to their queue, each once, whatever fails on the way."""

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.letter_reading import OriginalRecords
from penstock.broker.queues import AckType, RedriveResult
from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, GroupId
from penstock.queues.dead_letters import REDRIVEN_FOR, REDRIVES, REDRIVES_MAX
from penstock.queues.machine import ShareMachine
from penstock.records.batch import decode_records, parse_header
from tests.unit.broker.letters_rig import DLQ, LATE, LettersNode, Publishing, on_node
from tests.unit.broker.queue_rig import EARLIEST, TOPIC, G, data_of, leased
from tests.unit.lone_node import run
from tests.waiting import until

OTHER = GroupId("others")


async def redrive(node: LettersNode, limit: int = 1_000) -> RedriveResult:
    return await node.queues.redrive(G, TOPIC, limit)


async def polled(node: LettersNode, **options: Any) -> list[bytes | None]:
    return leased(await node.poll_now(**options))


def test_a_record_that_is_still_in_the_log_is_delivered_again(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"bad")
        await node.send(b"good", b"better")
        await node.until_sent(1)
        await node.poll()
        assert await node.acknowledge(1, 2) is None
        assert node.led.machine.start == 3
        assert await redrive(node) == RedriveResult(reopened=1)
        answer = await node.poll_now()
        assert leased(answer) == [b"bad"], "and nothing of what was acked"
        assert [tuple(each) for each in answer.ranges] == [(0, 0, 1)], "in its first attempt"
        assert await node.acknowledge(0, 0) is None
        assert node.led.machine.start == 3
        assert await redrive(node) == RedriveResult(), "once"
        assert await polled(node) == []

    on_node(scenario, tmp_path)


def test_a_limit_is_kept_and_the_next_time_goes_on(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(*(b"%d" % number for number in range(10)))
        await node.until_sent(10)
        assert await redrive(node, 4) == RedriveResult(reopened=4, is_finished=False)
        assert await polled(node) == [b"0", b"1", b"2", b"3"]
        assert await redrive(node, 6) == RedriveResult(reopened=6)
        assert await polled(node) == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert await redrive(node, 6) == RedriveResult()

    on_node(scenario, tmp_path)


def test_a_record_that_dies_again_and_again_stays_dead(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"poison")
        for times in range(REDRIVES_MAX):
            await node.until_sent(times + 1)
            assert await redrive(node) == RedriveResult(reopened=1)
            answer = await node.poll_now()
            assert leased(answer) == [b"poison"]
            await node.reject(0, 0)
        await node.until_sent(REDRIVES_MAX + 1)
        assert await redrive(node) == RedriveResult(skipped=1)
        assert await polled(node) == []
        last = dict(node.letters()[-1].headers)
        assert last[REDRIVES] == b"%d" % REDRIVES_MAX

    on_node(scenario, tmp_path)


def test_a_record_that_is_gone_is_appended_again_and_others_skip_it(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.set_group(OTHER, **EARLIEST)
        await node.make_queues(OTHER)
        await node.give_up(b"bad", b"worse")
        await node.until_sent(2)
        await node.replica().delete_records(2)
        assert await polled(node, group_id=OTHER) == []
        assert await redrive(node) == RedriveResult(copied=2)
        answer = await node.poll_now()
        data = data_of(answer)
        assert parse_header(data).producer_id >= COPIERS_FROM
        records = list(decode_records(data))
        assert [record.value for record in records] == [b"bad", b"worse"]
        assert [record.key for record in records] == [b"k", b"k"]
        assert dict(records[0].headers) == {REDRIVEN_FOR: G.encode(), REDRIVES: b"1"}
        assert await polled(node, group_id=OTHER) == []
        await node.send(b"next")
        assert await polled(node, group_id=OTHER) == [b"next"]
        assert await redrive(node) == RedriveResult()

    on_node(scenario, tmp_path)


def test_copies_that_die_again_are_counted_on(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"bad")
        await node.until_sent(1)
        await node.replica().delete_records(1)
        assert await redrive(node) == RedriveResult(copied=1)
        await node.poll_now()
        await node.reject(1, 1)
        await node.until_sent(2)
        letter = dict(node.letters()[-1].headers)
        assert letter[REDRIVES] == b"1"
        assert REDRIVEN_FOR not in letter

    on_node(scenario, tmp_path)


def test_a_letter_without_its_record_is_copied_as_headers(tmp_path: Path) -> None:
    """Records were not copied to the dead-letter topic, and are gone from the log."""

    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"bad")
        await node.until_sent(1)
        await node.replica().delete_records(1)
        assert await redrive(node) == RedriveResult(copied=1)
        assert await polled(node) == [None]

    on_node(scenario, tmp_path, errors_deadletterqueue_copy_record_enable="false")


def test_only_letters_of_the_group_and_the_topic_come_back(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.set_group(OTHER, **EARLIEST, **{"errors.deadletterqueue.topic.name": DLQ})
        await node.give_up(b"bad")
        await node.until_sent(1)
        assert await node.queues.redrive(OTHER, TOPIC, 10) == RedriveResult()
        await node.create("more")
        assert await node.queues.redrive(G, "more", 10) == RedriveResult()
        assert await redrive(node) == RedriveResult(reopened=1)

    on_node(scenario, tmp_path)


def test_letters_of_an_earlier_topic_of_the_same_name_do_not_come_back(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"old")
        await node.until_sent(1)
        await node.topics.delete([TOPIC])
        await node.create(TOPIC, partitions=1, retention_ms="-1")
        await node.make_queues()
        await node.give_up(b"new")
        await node.until_sent(2)
        assert await redrive(node) == RedriveResult(reopened=1)
        assert await polled(node) == [b"new"]

    on_node(scenario, tmp_path)


@pytest.mark.parametrize(("group", "topic"), [(G, "none"), (OTHER, TOPIC)])
def test_bad_names_are_refused(tmp_path: Path, group: GroupId, topic: str) -> None:
    async def scenario(node: LettersNode) -> None:
        with pytest.raises(Refused) as caught:
            await node.queues.redrive(group, topic, 10)
        reasons = (Reason.UNKNOWN_TOPIC_OR_PARTITION, Reason.INVALID_REQUEST)
        assert caught.value.reason in reasons

    on_node(scenario, tmp_path)


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_brought_back_stays_so_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    async def whole() -> None:
        node = await LettersNode.with_letters(tmp_path)
        await node.give_up(b"a", b"b")
        await node.until_sent(2)
        assert await redrive(node, 1) == RedriveResult(reopened=1, is_finished=False)
        if is_killed:
            node.kill()
        else:
            await node.stop()
        again = await LettersNode.begin(tmp_path)
        assert leased(await again.poll()) == [b"a"]
        assert await again.acknowledge(0, 0) is None
        assert await redrive(again) == RedriveResult(reopened=1)
        assert leased(await again.poll()) == [b"b"]
        assert await redrive(again) == RedriveResult()
        await again.stop()

    run(whole)


@pytest.mark.parametrize("is_appended", [True, False])
def test_a_killed_node_goes_on_with_its_copies(tmp_path: Path, is_appended: bool) -> None:
    async def whole() -> None:
        node = await LettersNode.with_letters(tmp_path)
        await node.give_up(b"a", b"b")
        await node.until_sent(2)
        await node.replica().delete_records(2)
        publishing = Publishing(node)
        if is_appended:
            publishing.refused_after = [LATE] * 100
        else:
            publishing.refused_before = [LATE] * 100
        task = node.start_task(redrive(node))
        await until(lambda: len(publishing.batches) >= 2)
        node.kill()
        task.cancel()
        again = await LettersNode.begin(tmp_path)
        await until(lambda: again.replica().high_watermark == 4)
        await until(again.is_settled)
        assert leased(await again.poll()) == [b"a", b"b"]
        assert await redrive(again) == RedriveResult()
        assert again.replica().high_watermark == 4
        await again.stop()

    run(whole)


def test_who_asks_again_while_copies_are_on_their_way_waits_for_them(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a", b"b")
        await node.until_sent(2)
        await node.replica().delete_records(2)
        publishing = Publishing(node)
        publishing.refused_before = [LATE] * 100
        first = node.start_task(redrive(node))
        await until(lambda: len(publishing.batches) >= 2)
        again = node.start_task(redrive(node))
        looks = len(publishing.batches) + 3
        await until(lambda: len(publishing.batches) >= looks or again.done())
        assert not again.done(), "they are not in the log yet"
        publishing.refused_before = []
        assert await first == RedriveResult(copied=2)
        assert await again == RedriveResult()
        assert await polled(node) == [b"a", b"b"]

    on_node(scenario, tmp_path)


def test_a_record_that_is_dying_again_when_it_has_been_looked_for_comes_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because the queue was opened again, without a change that was lost."""

    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a")
        await node.until_sent(1)
        present, is_dying = OriginalRecords.present, ShareMachine.is_dying
        looks: list[int] = []

        async def present_late(*args: Any) -> Any:
            found = await present(*args)
            looks.append(len(looks))
            return found

        def is_dying_at_first(machine: ShareMachine, offset: int) -> bool:
            return len(looks) == 1 or is_dying(machine, offset)

        monkeypatch.setattr(OriginalRecords, "present", present_late)
        monkeypatch.setattr(ShareMachine, "is_dying", is_dying_at_first)
        assert await redrive(node) == RedriveResult(reopened=1)
        assert looks == [0, 1]
        assert await polled(node) == [b"a"]

    on_node(scenario, tmp_path)


def test_a_copy_that_the_topic_refuses_is_passed_over(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        values = [b"a", b"x" * 2000, b"b"]
        await node.give_up(*values)
        await node.until_sent(3)
        await node.replica().delete_records(3)
        await node.create_config(TOPIC, **{"max.message.bytes": "500", "retention.ms": "-1"})
        assert await redrive(node) == RedriveResult(copied=2, skipped=1)
        assert await polled(node) == [b"a", b"b"]
        assert await redrive(node) == RedriveResult()

    on_node(scenario, tmp_path)


def test_a_record_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a")
        await node.until_sent(1)
        place = (node.topic_id, 0)
        assert (await node.queues.alter_offsets(G, {place: 0}))[place] is None
        assert leased(await node.poll()) == [b"a"], "an operator moved the start back"
        assert await redrive(node) == RedriveResult(skipped=1)
        assert await node.acknowledge(0, 0, AckType.ACCEPT) is None

    on_node(scenario, tmp_path)
