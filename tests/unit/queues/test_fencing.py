"""Who may change a stored queue: the newest leader, from its newest opening, in order, once."""

from uuid import UUID

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.commands import Change, Range, RecordState
from penstock.queues.decisions import Open, Write, decide_initialize, decide_open, decide_write
from penstock.queues.layout import QueueKey
from penstock.queues.state import QueuesState

KEY = QueueKey(GroupId("g"), TopicId(UUID(int=7)), 0)
LEASED = Range(0, 4, RecordState.LEASED, 1, MemberId("m"), 1000)


def opened(state: QueuesState, term: int, opening: int) -> int:
    records, stored = decide_open(state, Open(key=KEY, term=term, opening=opening))
    for record in records:
        state.apply(record)
    return stored.version


def write(state: QueuesState, term: int, opening: int, version: int, *changes: Change) -> None:
    command = Write(
        key=KEY,
        term=term,
        opening=opening,
        state_epoch=0,
        version=version,
        changes=changes or (Change(start=0),),
    )
    for record in decide_write(state, command):
        state.apply(record)


def state_of_term(term: int) -> QueuesState:
    state = QueuesState()
    for record in decide_initialize(state, {KEY: -1}):
        state.apply(record)
    opened(state, term, 1)
    write(state, term, 1, 1, Change(start=0))
    write(state, term, 1, 2, Change(start=0, ranges=(LEASED,)))
    return state


def refused(state: QueuesState, term: int, opening: int, version: int) -> Reason:
    before = state.get(KEY)
    assert before is not None
    stored = before.stored()
    with pytest.raises(Refused) as caught:
        write(state, term, opening, version, Change(start=5))
    assert before.stored() == stored
    return caught.value.reason


def test_a_change_that_arrives_again_is_refused() -> None:
    assert refused(state_of_term(3), 3, 1, 2) is Reason.FENCED_STATE_EPOCH


def test_a_change_that_comes_before_an_earlier_one_is_refused() -> None:
    assert refused(state_of_term(3), 3, 1, 4) is Reason.FENCED_STATE_EPOCH


def test_a_change_of_an_earlier_term_is_refused_although_it_would_be_the_next() -> None:
    state = state_of_term(3)
    assert opened(state, 4, 1) == 2
    assert refused(state, 3, 1, 3) is Reason.FENCED_LEADER_EPOCH


def test_a_change_of_an_earlier_opening_is_refused_although_it_would_be_the_next() -> None:
    state = state_of_term(3)
    assert opened(state, 3, 2) == 2
    assert refused(state, 3, 1, 3) is Reason.FENCED_STATE_EPOCH


def test_a_leader_of_an_earlier_term_does_not_get_a_queue_back() -> None:
    state = state_of_term(3)
    with pytest.raises(Refused) as caught:
        opened(state, 2, 9)
    assert caught.value.reason is Reason.FENCED_LEADER_EPOCH
    write(state, 3, 1, 3)


def test_an_opening_that_arrives_again_is_refused() -> None:
    state = state_of_term(3)
    with pytest.raises(Refused) as caught:
        opened(state, 3, 1)
    assert caught.value.reason is Reason.FENCED_STATE_EPOCH


def test_the_next_leader_gets_the_leases_of_the_one_before() -> None:
    state = state_of_term(3)
    _, stored = decide_open(state, Open(key=KEY, term=4, opening=1))
    assert stored.whole == Change(start=0, ranges=(LEASED,))
