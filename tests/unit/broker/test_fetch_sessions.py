"""Proves that sessions tell a consumer what is new, keep in step with it, and stay bounded."""

from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from penstock.broker.fetch_sessions import (
    EVICTION_S,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    SessionStep,
)
from penstock.broker.readers import Fetched, Wanted, partition_key
from penstock.model.errors import Reason, Refused
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicName

if TYPE_CHECKING:
    from penstock.broker.partitions import Partitions

TOPIC = TopicName("orders")


class StepClock:
    def __init__(self) -> None:
        self.now = 0.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


def sessions(clock: StepClock | None = None, **bounds: int) -> FetchSessions:
    ids = iter(range(1, 1_000_000))
    bounds.setdefault("sessions_max", 10)
    nothing_here = cast("Partitions", None)
    return FetchSessions(
        partitions=nothing_here,
        clock=clock or StepClock(),
        choose_id=lambda _: next(ids),
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
    session_id, sent = context.finish([fetched(one) for one in context.reader])
    assert len(sent) == len(partitions)
    return session_id


def refusal(cache: FetchSessions, step: SessionStep) -> Reason:
    with pytest.raises(Refused) as caught:
        cache.begin(step, [], [])
    return caught.value.reason


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
    told_id, told = context.finish(results)
    assert told_id == session_id
    assert [result.wanted.partition for result in told] == [1, 2]


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
        _, told = context.finish([Fetched(next(iter(context.reader)), Reason.STORAGE_ERROR)])
        assert len(told) == 1
    context = cache.begin(SessionStep(session_id, 3, False), [], [])
    assert len(context.finish([fetched(next(iter(context.reader)))])[1]) == 1
    context = cache.begin(SessionStep(session_id, 4, False), [], [])
    assert context.finish([fetched(next(iter(context.reader)))])[1] == []


def test_a_forgotten_partition_is_read_no_more_and_an_empty_session_ends() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0), wanted(1))
    forgotten = [partition_key(TOPIC, NO_TOPIC_ID, 0)]
    context = cache.begin(SessionStep(session_id, 1, False), [], forgotten)
    assert [one.partition for one in context.reader] == [1]
    forgotten = [partition_key(TOPIC, NO_TOPIC_ID, 1)]
    context = cache.begin(SessionStep(session_id, 2, False), [], forgotten)
    assert context.finish([]) == (NO_SESSION, [])
    assert len(cache) == 0


def test_requests_out_of_step_are_refused() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    assert refusal(cache, SessionStep(session_id + 1, 1, False)) is (
        Reason.FETCH_SESSION_ID_NOT_FOUND
    )
    assert refusal(cache, SessionStep(session_id, 2, False)) is Reason.INVALID_FETCH_SESSION_EPOCH
    assert refusal(cache, SessionStep(session_id, 1, True)) is Reason.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_answer_that_a_later_request_overtook_is_refused() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    slow = cache.begin(SessionStep(session_id, 1, False), [], [])
    cache.begin(SessionStep(session_id, 2, False), [], [])
    with pytest.raises(Refused) as caught:
        slow.finish([])
    assert caught.value.reason is Reason.INVALID_FETCH_SESSION_EPOCH


def test_a_full_request_ends_the_session_it_names() -> None:
    cache = sessions()
    session_id = open_session(cache, wanted(0))
    context = cache.begin(SessionStep(session_id, FINAL_EPOCH, False), [wanted(0)], [])
    assert context.finish([fetched(next(iter(context.reader)))])[0] == NO_SESSION
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
    session_id, _ = context.finish([fetched(one) for one in partitions])
    context = cache.begin(SessionStep(session_id, 1, True), [], [])
    assert [one.topic_id for one in context.reader] == [first, second]


def test_a_full_cache_evicts_only_what_was_not_used_for_a_while() -> None:
    clock = StepClock()
    cache = sessions(clock, sessions_max=2)
    first = open_session(cache, wanted(0))
    second = open_session(cache, wanted(0))
    assert open_session(cache, wanted(0)) == NO_SESSION
    clock.now = EVICTION_S / 2
    cache.begin(SessionStep(first, 1, False), [], [])
    clock.now = EVICTION_S + 1
    assert open_session(cache, wanted(0)) != NO_SESSION
    assert refusal(cache, SessionStep(second, 1, False)) is Reason.FETCH_SESSION_ID_NOT_FOUND
    cache.begin(SessionStep(first, 2, False), [], [])


def test_the_partitions_of_all_sessions_together_are_bounded() -> None:
    cache = sessions(partitions_max=3)
    session_id = open_session(cache, wanted(0), wanted(1))
    assert open_session(cache, wanted(0), wanted(1)) == NO_SESSION
    more = [wanted(number) for number in range(2, 6)]
    context = cache.begin(SessionStep(session_id, 1, False), more, [])
    assert len(context.reader) == 6
    assert context.finish([])[0] == NO_SESSION
    assert len(cache) == 0
