"""Proves that sessions tell a consumer what is new, keep in step with it, and stay bounded."""

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from penstock.broker.fetch import FetchAnswer, FetchCall
from penstock.broker.readers import Fetched, Reader, Wanted, partition_key
from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.frontdoor.kafka.fetch_sessions import (
    EVICTION_S,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    SessionAnswer,
    SessionStep,
)
from penstock.model.errors import Reason
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicName
from penstock.model.topic_config import TopicConfig
from penstock.protocol.kafka.error_codes import ErrorCode
from tests.unit.broker.partition_rig import Node, running
from tests.unit.broker.test_fetch import Consumer, contents, query, write
from tests.unit.clocks import ManualClock
from tests.unit.replication.rig import TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from penstock.broker.partitions import Partitions


def sessions(clock: ManualClock | None = None, **bounds: int) -> FetchSessions:
    bounds.setdefault("sessions_max", 10)
    nothing_here = cast("Partitions", None)
    return FetchSessions(
        make_reader=partial(Reader, nothing_here),
        clock=clock or ManualClock(),
        random=Random(1),
        **bounds,
    )


def wanted(partition: int = 0, offset: int = 0, topic_id: TopicId = NO_TOPIC_ID) -> Wanted:
    return Wanted(TOPIC, topic_id, partition, offset=offset, bytes_max=1_000)


def fetched(one: Wanted, high_watermark: int = 0, records: bytes | None = None) -> Fetched:
    result = Fetched(one)
    result.high_watermark = high_watermark
    result.log_start_offset = 0
    result.records = records
    return result


def open_session(cache: FetchSessions, *partitions: Wanted) -> int:
    context = cache.begin(SessionStep(NO_SESSION, INITIAL_EPOCH, False), list(partitions), [])
    answer = context.answer([fetched(one) for one in context.reader])
    assert len(answer.partitions) == len(partitions)
    return answer.session_id


def refusal(cache: FetchSessions, step: SessionStep) -> ErrorCode:
    with pytest.raises(RefusedWith) as caught:
        cache.begin(step, [], [])
    return caught.value.code


def test_an_incremental_fetch_reads_all_partitions_and_tells_only_what_is_new() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0), wanted(1), wanted(2))
    context = cache.begin(SessionStep(session_id, 1, False), [wanted(1, offset=5)], [])
    assert [(one.partition, one.offset) for one in context.reader] == [(0, 0), (1, 5), (2, 0)]
    results = [
        fetched(next(iter(context.reader))),
        fetched(list(context.reader)[1], high_watermark=6, records=b"batch"),
        fetched(list(context.reader)[2], high_watermark=1),
    ]
    answer = context.answer(results)
    assert answer.session_id == session_id
    assert [result.wanted.partition for result in answer.partitions] == [1, 2]


def test_partitions_that_had_their_turn_go_to_the_back_of_the_line() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0), wanted(1))
    context = cache.begin(SessionStep(session_id, 1, False), [], [])
    assert [one.partition for one in context.reader.news] == [0, 1]
    context.reader.looked(fetched(context.reader.news[0], records=b"x"))
    assert [one.partition for one in context.reader.news] == [1, 0]


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    for epoch in (1, 2):
        context = cache.begin(SessionStep(session_id, epoch, False), [], [])
        answer = context.answer([Fetched(next(iter(context.reader)), Reason.STORAGE_ERROR)])
        assert len(answer.partitions) == 1
    context = cache.begin(SessionStep(session_id, 3, False), [], [])
    assert len(context.answer([fetched(next(iter(context.reader)))]).partitions) == 1
    context = cache.begin(SessionStep(session_id, 4, False), [], [])
    assert context.answer([fetched(next(iter(context.reader)))]).partitions == []


def test_a_forgotten_partition_is_read_no_more_and_an_empty_session_ends() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0), wanted(1))
    forgotten = [partition_key(TOPIC, NO_TOPIC_ID, 0)]
    context = cache.begin(SessionStep(session_id, 1, False), [], forgotten)
    assert [one.partition for one in context.reader] == [1]
    forgotten = [partition_key(TOPIC, NO_TOPIC_ID, 1)]
    context = cache.begin(SessionStep(session_id, 2, False), [], forgotten)
    answer = context.answer([])
    assert (answer.session_id, answer.partitions) == (NO_SESSION, [])
    assert len(cache) == 0


def test_requests_out_of_step_are_refused() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    unknown, ahead = SessionStep(session_id + 1, 1, False), SessionStep(session_id, 2, False)
    by_ids = SessionStep(session_id, 1, True)
    assert refusal(cache, unknown) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(cache, ahead) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(cache, by_ids) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_answer_that_a_later_request_overtook_is_refused() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    slow = cache.begin(SessionStep(session_id, 1, False), [], [])
    cache.begin(SessionStep(session_id, 2, False), [], [])
    with pytest.raises(RefusedWith) as caught:
        slow.answer([])
    assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_request_ends_the_session_it_names() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    context = cache.begin(SessionStep(session_id, FINAL_EPOCH, False), [wanted(0)], [])
    assert context.answer([fetched(next(iter(context.reader)))]).session_id == NO_SESSION
    assert len(cache) == 0


def test_epochs_wrap_to_one() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    cache._sessions[session_id].epoch = 2**31 - 1
    cache.begin(SessionStep(session_id, 2**31 - 1, False), [], [])
    cache.begin(SessionStep(session_id, 1, False), [], [])


def test_topics_that_go_by_id_are_told_apart_by_it() -> None:
    first, second = TopicId(UUID(int=8)), TopicId(UUID(int=9))
    cache = sessions()
    partitions = [
        Wanted(TopicName(""), topic_id, 0, offset=0, bytes_max=1) for topic_id in (first, second)
    ]
    context = cache.begin(SessionStep(NO_SESSION, INITIAL_EPOCH, True), partitions, [])
    session_id = context.answer([fetched(one) for one in partitions]).session_id
    context = cache.begin(SessionStep(session_id, 1, True), [], [])
    assert [one.topic_id for one in context.reader] == [first, second]


def test_a_full_cache_evicts_only_what_was_not_used_for_a_while() -> None:
    clock = ManualClock()
    cache = sessions(clock, sessions_max=2)
    first = open_session(cache, wanted(0))
    second = open_session(cache, wanted(0))
    assert open_session(cache, wanted(0)) == NO_SESSION
    clock.ms += int(EVICTION_S * 500)
    cache.begin(SessionStep(first, 1, False), [], [])
    clock.ms += int(EVICTION_S * 500) + 1_000
    assert open_session(cache, wanted(0)) != NO_SESSION
    assert refusal(cache, SessionStep(second, 1, False)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.begin(SessionStep(first, 2, False), [], [])


def test_the_partitions_of_all_sessions_together_are_bounded() -> None:
    cache = sessions(partitions_max=3)
    session_id = open_session(cache, wanted(0), wanted(1))
    assert open_session(cache, wanted(0), wanted(1)) == NO_SESSION
    more = [wanted(number) for number in range(2, 6)]
    context = cache.begin(SessionStep(session_id, 1, False), more, [])
    assert len(context.reader) == 6
    assert context.answer([]).session_id == NO_SESSION
    assert len(cache) == 0


class SessionConsumer(Consumer):
    """Reads a broker's partitions through sessions."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.sessions = FetchSessions(
            make_reader=self.fetch.reader, clock=node.clock, sessions_max=10, random=Random(1)
        )

    def ask(self, *parts: Wanted, **options: Any) -> FetchCall:
        step = options.pop("step", SessionStep(NO_SESSION, FINAL_EPOCH, False))
        context = self.sessions.begin(step, parts, [])
        return self.fetch.fetch(context, query(**options))


def session_of(answer: FetchAnswer) -> int:
    assert isinstance(answer, SessionAnswer)
    return answer.session_id


async def test_a_session_goes_on_with_what_is_new(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig())
        one, two = node.partitions.all()
        await write(one, b"a")
        consumer = SessionConsumer(node)
        opening = SessionStep(NO_SESSION, INITIAL_EPOCH, False)
        answer = await consumer.get(wanted(), wanted(1), step=opening)
        session_id = session_of(answer)
        assert session_id != NO_SESSION
        assert contents(answer) == [[b"a"], None]
        poll = consumer.ask(
            wanted(0, offset=1), step=SessionStep(session_id, 1, False), wait_ms_max=60_000
        )
        assert not poll.is_settled
        await write(two, b"b")
        answer = await poll
        assert session_of(answer) == session_id
        assert [fetched.wanted.partition for fetched in answer.partitions] == [1]
        assert contents(answer) == [[b"b"]]
        with pytest.raises(RefusedWith) as caught:
            consumer.ask(step=SessionStep(session_id, 1, False))
        assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_session_hears_what_became_of_a_topic_that_is_gone(tmp_path: Path) -> None:
    """Only a session does: others are told that they ask for an id that nobody knows."""
    async with running(tmp_path) as node:
        await write(await node.replica(), b"a")
        consumer, new_id = SessionConsumer(node), TopicId(UUID(int=78))

        def old() -> Wanted:
            return Wanted(TopicName(""), TOPIC_ID, 0, offset=1, bytes_max=1_000)

        answer = await consumer.get(old(), step=SessionStep(NO_SESSION, INITIAL_EPOCH, True))
        session_id = session_of(answer)

        async def heard(epoch: int) -> object:
            return contents(await consumer.get(step=SessionStep(session_id, epoch, True)))

        await node.partitions.retire_topic(TOPIC_ID)
        assert await heard(1) == [Reason.UNKNOWN_TOPIC_OR_PARTITION]
        await node.replica(topic_id=new_id)
        assert await heard(2) == [Reason.INCONSISTENT_TOPIC_ID]
        assert contents(await consumer.get(old())) == [Reason.UNKNOWN_TOPIC_ID]


async def test_an_overtaken_long_poll_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        consumer = SessionConsumer(node)
        opening = SessionStep(NO_SESSION, INITIAL_EPOCH, False)
        session_id = session_of(await consumer.get(wanted(), step=opening))
        slow = consumer.ask(step=SessionStep(session_id, 1, False), wait_ms_max=60_000)
        fast = consumer.ask(step=SessionStep(session_id, 2, False), wait_ms_max=60_000)
        assert not fast.is_settled
        await write(replica, b"a")
        assert contents(await fast) == [[b"a"]]
        with pytest.raises(RefusedWith) as caught:
            await slow
        assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
