"""What a group gives up goes to its dead-letter topic, once, whatever fails on the way."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import letter_carrier, letter_waking
from penstock.broker.letter_reading import OriginalRecords
from penstock.broker.queues import AckType
from penstock.cluster.config_decisions import Edit, GroupResource, Operation, TopicResource
from penstock.model.errors import Reason, Refused
from penstock.queues.dead_letters import GENERATION, GENERATIONS_MAX
from penstock.queues.letters import Plan
from penstock.records.batch import parse_header
from penstock.records.record import Record
from tests.unit.broker.letters_rig import (
    DLQ,
    LATE,
    LETTERS,
    LettersNode,
    Publishing,
    header,
    on_node,
)
from tests.unit.broker.queue_rig import EARLIEST, TOPIC, G, M, leased
from tests.unit.lone_node import run
from tests.unit.replication.rig import START_MS
from tests.waiting import until


def test_a_rejected_record_is_copied_with_headers_that_say_why(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.send(b"good", b"bad")
        await node.poll()
        assert await node.acknowledge(0, 0) is None
        await node.reject(1, 1)
        await node.until_sent(1)
        (letter,) = node.letters()
        assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b"bad", START_MS)
        names = ("topic", "partition", "offset", "group", "delivery.count", "message")
        said = [header(letter, name) for name in names]
        assert said == [TOPIC, "0", "1", G, "1", "Offset rejected by client."]
        assert node.led.machine.start == 2

    on_node(scenario, tmp_path)


def test_a_record_is_given_up_after_its_last_attempt(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.send(b"poison")
        for _ in range(2):
            assert node.letters() == []
            await node.poll()
            assert await node.acknowledge(0, 0, AckType.RELEASE) is None
        await node.until_sent(1)
        (letter,) = node.letters()
        assert header(letter, "delivery.count") == "2"
        assert header(letter, "message") == "Offset delivery count exceeded the threshold."

    on_node(scenario, tmp_path, share_delivery_count_limit="2")


def test_headers_alone_are_sent_if_records_are_not_to_be_copied(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a")
        await node.until_sent(1)
        (letter,) = node.letters()
        assert (letter.key, letter.value, header(letter, "offset")) == (None, None, "0")

    on_node(scenario, tmp_path, errors_deadletterqueue_copy_record_enable="false")


def test_the_headers_of_the_record_are_kept(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        from penstock.records.batch import build_batch

        own = Record(timestamp_ms=START_MS, value=b"v", headers=(("trace", b"7"), ("none", None)))
        done = node.replica().append(build_batch([own])).done
        assert done is None or await done is None
        await node.poll()
        await node.reject(0, 0)
        await node.until_sent(1)
        assert node.letters()[0].headers[:2] == own.headers

    on_node(scenario, tmp_path)


def test_letters_of_letters_do_not_go_in_circles(tmp_path: Path) -> None:
    """Two groups that read each other's dead letters would pass a record on endlessly."""

    async def scenario(node: LettersNode) -> None:
        edits = [Edit("errors.deadletterqueue.group.enable", Operation.SET, "true")]
        await node.cluster.edit_configs([(TopicResource(TOPIC), edits)])
        passed_on = [("__dlq.errors.group", b"other")]
        further = [
            (GENERATION, b"%d" % number) for number in (GENERATIONS_MAX - 1, GENERATIONS_MAX)
        ]
        await node.send_records(
            *(
                Record(timestamp_ms=START_MS, value=b"v", headers=(*passed_on, *more))
                for more in ([], [further[0]], [further[1]])
            )
        )
        await node.poll()
        await node.reject(0, 2)
        await node.until_sent(2)
        await until(node.is_settled)
        said = [dict(letter.headers)[GENERATION] for letter in node.letters()]
        assert said == [b"2", b"%d" % GENERATIONS_MAX]
        # The third stays where it is, and holds up nobody.
        assert node.led.machine.start == 3

    for is_copied in ("true", "false"):
        settings = {"errors_deadletterqueue_copy_record_enable": is_copied}
        on_node(scenario, tmp_path / is_copied, **settings)


def test_many_letters_go_in_a_few_batches(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        values = [b"%d" % number for number in range(1_200)]
        await node.send(*values)
        answer = await node.poll(records_max=2_000)
        await node.reject(answer.ranges[0].first, answer.ranges[-1].last)
        await node.until_sent(1_200)
        assert node.values() == values
        assert node.led.machine.letters.sent_count == 1_200
        # Opened, 3 plans, 3 arrivals, the rest of the queue's life: far fewer than letters.
        assert node.led._storing._version < 20

    on_node(scenario, tmp_path)


def test_others_flow_by_while_the_topic_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def whole() -> None:
        auto = {"errors_deadletterqueue_auto_create_topics_enable": "false"}
        node = await LettersNode.begin(tmp_path, **auto)
        await node.set_group(**EARLIEST, **LETTERS)
        await node.give_up(b"bad")
        await until(lambda: "there is no topic dlq.jobs" in node.trouble)
        for _ in range(3):
            await node.send(b"good")
            answer = await node.poll()
            assert await node.acknowledge(answer.ranges[0].first, answer.ranges[0].last) is None
        assert node.led.machine.dying_count == 1
        assert node.led.machine.start == 4, "nothing waits for it"
        assert not node.led.is_idle, "it is not closed while something is to be sent"
        said = [each for each in caplog.messages if "dead letters" in each]
        assert len(said) == 1, "it is said once"
        await node.create(DLQ, errors_deadletterqueue_group_enable="true")
        await node.until_sent(1)
        assert node.values() == [b"bad"]
        await until(lambda: node.trouble == "")
        await node.stop()

    run(whole)


def test_a_topic_that_does_not_accept_letters_gets_none(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.create(DLQ)
        await node.give_up(b"bad")
        await until(lambda: "group.enable=true" in node.trouble)
        assert node.letters() == []
        edits = {"errors.deadletterqueue.group.enable": "true"}
        assert await node.cluster.replace_configs([(TopicResource(DLQ), edits)]) == [None]
        await node.until_sent(1)

    on_node(scenario, tmp_path)


@pytest.mark.parametrize("name", ["__consumer_offsets", "jobs.dead", "dlq.öl", "dlq.closed"])
def test_a_topic_that_can_not_take_letters_is_refused(tmp_path: Path, name: str) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.create("dlq.closed")
        wanted = {"errors.deadletterqueue.topic.name": name}
        (refused,) = await node.cluster.replace_configs([(GroupResource("other"), wanted)])
        assert refused is not None
        assert refused.reason is Reason.INVALID_CONFIG
        assert name in refused.detail

    on_node(scenario, tmp_path)


def test_a_topic_that_the_group_reads_itself_is_refused(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.create("dlq.read", errors_deadletterqueue_group_enable="true")
        topic = node.cluster.topic("dlq.read")
        assert topic is not None
        await node.queues.initialize(G, {topic.topic_id: {0: -1}})
        edits = [Edit("errors.deadletterqueue.topic.name", Operation.SET, "dlq.read")]
        other = (GroupResource("other"), edits)
        wanted = [(GroupResource(G), edits), other]
        refused, allowed = await node.services.configs.edit(wanted)
        assert refused is not None
        assert "reads this topic itself" in refused.detail
        assert allowed is None
        assert node.cluster.group_configs[G]["errors.deadletterqueue.topic.name"] == DLQ

    on_node(scenario, tmp_path)


def test_a_record_that_is_too_large_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        enabled = {"errors_deadletterqueue_group_enable": "true"}
        await node.create(DLQ, partitions=1, max_message_bytes="2000", **enabled)
        values = [b"a", b"x" * 3000, b"b", b"c"]
        await node.give_up(*values)
        await until(lambda: len(node.letters()) == 3)
        assert node.values() == [b"a", b"b", b"c"]
        await until(lambda: "offset 1" in node.trouble)
        assert [each[:2] for each in node.led.machine.dying()] == [(1, 1)]
        await node.give_up(b"d")
        await until(lambda: node.values() == [b"a", b"b", b"c", b"d"])
        larger = {"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "9000"}
        assert await node.cluster.replace_configs([(TopicResource(DLQ), larger)]) == [None]
        await node.until_sent(5)
        assert sorted(node.values()) == sorted([*values, b"d"])
        await until(lambda: node.trouble == "")

    on_node(scenario, tmp_path)


def test_a_record_that_is_gone_from_the_log_leaves_its_headers(tmp_path: Path) -> None:
    async def whole() -> None:
        auto = {"errors_deadletterqueue_auto_create_topics_enable": "false"}
        node = await LettersNode.begin(tmp_path, **auto)
        await node.set_group(**EARLIEST, **LETTERS)
        await node.give_up(b"a", b"b")
        await node.replica().delete_records(1)
        await node.poll_now()
        await node.create(DLQ, errors_deadletterqueue_group_enable="true")
        await node.until_sent(2)
        assert node.values() == [None, b"b"]
        assert [header(letter, "offset") for letter in node.letters()] == ["0", "1"]
        await node.stop()

    run(whole)


def test_letters_are_dead_if_the_group_has_no_topic_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_carrier, "RETRY_S_MAX", 0.1)

    async def whole() -> None:
        auto = {"errors_deadletterqueue_auto_create_topics_enable": "false"}
        node = await LettersNode.begin(tmp_path, **auto)
        await node.set_group(**EARLIEST, **LETTERS)
        await node.give_up(b"a", b"b")
        await until(lambda: node.trouble)
        await node.set_group(**EARLIEST)
        await until(node.is_settled)
        await until(lambda: "2 records of" in caplog.text)
        await node.stop()

    run(whole)


def test_letters_of_letters_are_not_sent_to_the_same_topic(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a")
        await node.until_sent(1)
        topic = node.cluster.topic(DLQ)
        assert topic is not None
        await node.queues.initialize(G, {topic.topic_id: {0: 0}})
        answer = await node.poll(topic_id=topic.topic_id)
        assert leased(answer) == [b"a"]
        place = (topic.topic_id, 0)
        from penstock.broker.queues import AckBatch

        acks = {place: [AckBatch(first=0, last=0, types=(AckType.REJECT,))]}
        assert (await node.queues.acknowledge(G, M, acks))[place] is None
        queue = node.queues.lead(G, *place)
        assert queue.machine.start == 1
        assert not queue.machine.has_letters, "it is dead at once"

    on_node(scenario, tmp_path)


# Failures


def test_a_batch_whose_fate_is_unknown_is_sent_again_as_it_was(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.refused_after = [LATE]
        publishing.refused_before = []
        await node.give_up(b"a", b"b")
        await node.until_sent(2)
        assert node.values() == [b"a", b"b"], "once"
        assert len(publishing.batches) == 2
        first, second = map(parse_header, publishing.batches)
        assert first == second

    on_node(scenario, tmp_path)


def test_a_plan_is_stored_before_it_is_sent(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.goes_on.clear()
        await node.give_up(b"a")
        await until(lambda: publishing.batches)
        stored = _stored(node)
        assert stored.letters.plan == Plan(tuple(node.led.machine.letters.plan.letters), 1)
        assert stored.letters.sender.sequence == 0
        publishing.goes_on.set()
        await node.until_sent(1)
        await until(lambda: _stored(node).letters.sender.sequence == 1)

    on_node(scenario, tmp_path)


def _stored(node: LettersNode) -> Any:
    """The queue as its coordinator knows it."""
    for coordinator in node.queues._coordinators._coordinators.values():
        queue = coordinator._host.state.get(node.led.key)
        if queue is not None:
            return queue.machine
    raise AssertionError("no coordinator knows the queue")


def test_records_are_dying_until_the_topic_has_them(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.goes_on.clear()
        await node.give_up(b"a", b"b")
        await until(lambda: publishing.batches)
        assert _stored(node).dying_count == 2
        publishing.goes_on.set()
        await node.until_sent(2)
        await until(lambda: _stored(node).dying_count == 0)

    on_node(scenario, tmp_path)


def test_no_letter_is_planned_for_a_queue_as_it_was_before_it_was_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        read, is_read, goes_on = OriginalRecords.read, asyncio.Event(), asyncio.Event()

        async def read_late(*args: Any) -> Any:
            found = await read(*args)
            is_read.set()
            await goes_on.wait()
            return found

        monkeypatch.setattr(OriginalRecords, "read", read_late)
        await node.give_up(b"a")
        await is_read.wait()
        carrier = node.queues._letters._carriers[node.led].task
        # It is to be delivered again, so it is not dying any more.
        queue = node.led
        assert await node.queues._coordinators.alter({queue.key: 0}) == {queue.key: None}
        queue._void(Refused(Reason.COORDINATOR_NOT_AVAILABLE, "its state was changed"))
        await queue.open()
        goes_on.set()
        await carrier
        assert publishing.batches == []
        assert leased(await node.poll()) == [b"a"]

    on_node(scenario, tmp_path)


@pytest.mark.parametrize("is_appended", [True, False])
@pytest.mark.parametrize("has_next", [True, False])
def test_a_killed_node_goes_on_where_it_was(
    tmp_path: Path, is_appended: bool, has_next: bool
) -> None:
    """Killed after the plan was stored, before or after the topic has the batch."""

    async def whole() -> None:
        node = await LettersNode.with_letters(tmp_path)
        await node.give_up(b"before")
        await node.until_sent(1)
        publishing = Publishing(node)
        if is_appended:
            publishing.refused_after = [LATE] * 100
        else:
            publishing.refused_before = [LATE] * 100
        await node.give_up(b"a", b"b")
        await until(lambda: len(publishing.batches) >= 2)
        if has_next:
            await node.give_up(b"c")
        await until(lambda: len(node.letters()) == (3 if is_appended else 1))
        node.kill()
        again = await LettersNode.begin(tmp_path)
        # Nobody polls: its coordinator sees to it.
        expected = [b"before", b"a", b"b", *([b"c"] if has_next else [])]
        await until(lambda: again.values() == expected)
        await until(again.is_settled)
        await again.give_up(b"d")
        await until(lambda: again.values() == [*expected, b"d"])
        await again.stop()

    run(whole)


def test_more_queues_than_are_woken_at_a_time_are_woken_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come first may have letters for long, and must not keep the others waiting."""
    monkeypatch.setattr(letter_waking, "WAKE_S", 0.01)
    monkeypatch.setattr(letter_waking, "WOKEN_MAX", 2)

    async def whole() -> None:
        auto = {"errors_deadletterqueue_auto_create_topics_enable": "false"}
        node = await LettersNode.begin(tmp_path, partitions=5, **auto)
        await node.set_group(**EARLIEST, **LETTERS)
        for partition in range(5):
            await node.send(b"bad", partition=partition)
            await node.poll(partitions=[partition])
            assert await node.acknowledge(0, 0, AckType.REJECT, partition=partition) is None
        node.kill()
        again = await LettersNode.begin(tmp_path, **auto)
        await until(lambda: {key.partition for key in again.queues._led} == set(range(5)))
        await again.stop()

    run(whole)


def test_a_refused_batch_gets_shorter_and_uses_no_sequence(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.refused_before = [Refused(Reason.MESSAGE_TOO_LARGE, "too large")] * 2
        await node.give_up(b"a", b"b", b"c", b"d")
        await node.until_sent(4)
        assert node.values() == [b"a", b"b", b"c", b"d"]
        headers = [parse_header(sent) for sent in publishing.batches]
        assert [each.record_count for each in headers] == [4, 2, 1, 3]
        assert [each.base_sequence for each in headers] == [0, 0, 0, 1]

    on_node(scenario, tmp_path)


def test_a_refused_batch_that_another_leader_may_have_sent_is_looked_for(tmp_path: Path) -> None:
    """The topic would refuse it now, but it has it already."""

    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.spared, publishing.refused_after = 1, [LATE]
        publishing.refused_before = [Refused(Reason.MESSAGE_TOO_LARGE, "too large")]
        await node.give_up(b"a", b"b")
        await node.until_sent(2)
        assert node.values() == [b"a", b"b"]
        assert len(publishing.batches) == 2
        await node.give_up(b"c")
        await node.until_sent(3)
        assert node.values() == [b"a", b"b", b"c"]

    on_node(scenario, tmp_path)


def test_a_topic_that_was_made_again_gets_a_new_plan_of_a_new_producer(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"first")
        await node.until_sent(1)
        before = node.led.machine.letters.sender
        publishing = Publishing(node)
        publishing.refused_before = [LATE]
        publishing.goes_on.clear()
        await node.give_up(b"a")
        await until(lambda: publishing.batches)
        await node.topics.delete([DLQ])
        publishing.goes_on.set()
        await until(lambda: node.values() == [b"a"])
        await until(node.is_settled)
        after = node.led.machine.letters.sender
        assert after.topic_id != before.topic_id
        assert after.producer_id != before.producer_id
        assert parse_header(publishing.batches[-1]).base_sequence == 0

    on_node(scenario, tmp_path)


def test_new_plans_go_to_the_topic_that_is_set_now(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        await node.give_up(b"a")
        await node.until_sent(1)
        other = {"errors.deadletterqueue.topic.name": "dlq.other"}
        await node.set_group(**EARLIEST, **other)
        await node.give_up(b"b")
        await until(lambda: node.values("dlq.other") == [b"b"])
        assert node.values() == [b"a"]
        await node.set_group(**EARLIEST, **LETTERS)
        await node.give_up(b"c")
        await until(lambda: node.values() == [b"a", b"c"])

    on_node(scenario, tmp_path)


def test_an_unknown_plan_of_an_earlier_topic_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        publishing.refused_after = [LATE]
        publishing.goes_on.clear()
        await node.give_up(b"a")
        await until(lambda: publishing.batches)
        await node.set_group(**EARLIEST, **{"errors.deadletterqueue.topic.name": "dlq.other"})
        publishing.goes_on.set()
        await until(node.is_settled)
        assert node.values() == [b"a"]
        assert node.values("dlq.other") == []

    on_node(scenario, tmp_path)


def test_a_duplicate_of_batches_long_past_is_refused(tmp_path: Path) -> None:
    """As a leader that was replaced might send it, very late."""

    async def scenario(node: LettersNode) -> None:
        publishing = Publishing(node)
        for number in range(7):
            await node.give_up(b"%d" % number)
            await node.until_sent(number + 1)
        sender = node.led.machine.letters.sender
        for late in publishing.batches[:6]:
            deadline = node.services.clock.monotonic() + 5
            with suppress(Refused):
                await publishing._publisher.publish(sender.topic_id, 0, late, deadline)
        assert node.values() == [b"%d" % number for number in range(7)]

    on_node(scenario, tmp_path)
