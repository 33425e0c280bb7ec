"""Share sessions: epochs, partitions in turn, connections and limits."""

from uuid import UUID

import pytest

from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.share_sessions import (
    EPOCH_MAX,
    STAY_S_MAX,
    SessionKey,
    ShareKey,
    ShareSession,
    ShareSessions,
)
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.protocol.kafka.error_codes import ErrorCode

TOPIC = TopicId(UUID(int=7))
FIRST, SECOND, THIRD = ((TOPIC, number) for number in range(3))
HERE, THERE = 1, 2


def key(member: str = "m", group: str = "g") -> SessionKey:
    return SessionKey(GroupId(group), MemberId(member))


def opened(*partitions: ShareKey) -> tuple[ShareSessions, ShareSession]:
    sessions = ShareSessions(10)
    return sessions, sessions.open(key(), HERE, partitions)


def refused_step(sessions: ShareSessions, epoch: int, member: str = "m") -> ErrorCode:
    with pytest.raises(Refused) as caught:
        sessions.step(key(member), epoch)
    return error_code(caught.value)


def test_each_request_says_the_next_epoch() -> None:
    sessions, session = opened(FIRST)
    assert [sessions.step(key(), epoch) for epoch in (1, 2, 3)] == [session] * 3
    assert refused_step(sessions, 3) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refused_step(sessions, 5) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refused_step(sessions, -2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.step(key(), 4) is session


def test_the_epoch_after_the_last_one_is_the_first() -> None:
    sessions, session = opened(FIRST)
    session.epoch = EPOCH_MAX
    sessions.step(key(), EPOCH_MAX)
    assert session.epoch == 1


def test_a_member_without_a_session_is_told_so() -> None:
    sessions, _ = opened(FIRST)
    assert refused_step(sessions, 1, "other") is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.close(key())
    assert refused_step(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.close(key()) is None


def test_members_of_two_groups_have_a_session_each() -> None:
    sessions, session = opened(FIRST)
    other = sessions.open(key(group="h"), HERE, [SECOND])
    assert sessions.step(key(), 1) is session
    assert sessions.step(key(group="h"), 1) is other


def test_a_request_out_of_step_changes_nothing() -> None:
    sessions, session = opened(FIRST)
    with pytest.raises(Refused):
        sessions.step(key(), 7, [SECOND], [FIRST])
    assert session.in_turn(0) == [FIRST]


def test_partitions_come_and_go() -> None:
    sessions, session = opened(FIRST)
    sessions.step(key(), 1, [SECOND, THIRD, FIRST], [THIRD, (TOPIC, 9)])
    assert session.in_turn(0) == [FIRST, SECOND]


def test_each_request_begins_with_another_partition() -> None:
    _, session = opened(FIRST, SECOND, THIRD)
    assert session.in_turn(0) == session.in_turn(3) == [FIRST, SECOND, THIRD]
    assert session.in_turn(1) == [SECOND, THIRD, FIRST]
    assert session.in_turn(5) == [THIRD, FIRST, SECOND]
    assert ShareSession(key(), HERE, []).in_turn(4) == []


def test_the_partition_that_was_served_goes_to_the_end() -> None:
    _, session = opened(FIRST, SECOND, THIRD)
    session.served(FIRST)
    session.served((TOPIC, 9))
    assert session.in_turn(0) == [SECOND, THIRD, FIRST]


def test_a_member_that_acks_at_once_stays_with_its_partition_for_a_moment() -> None:
    session = ShareSession(key(), HERE, [FIRST, SECOND, THIRD])
    session.served(FIRST, 10.0)
    soon, late = 10.0 + STAY_S_MAX / 2, 10.0 + STAY_S_MAX
    assert session.in_turn(3, [FIRST], soon) == [FIRST, SECOND, THIRD]
    assert session.in_turn(3, [], soon) == [SECOND, THIRD, FIRST], "it acks nothing"
    assert session.in_turn(3, [THIRD], soon) == [SECOND, THIRD, FIRST], "it acks another"
    session.served(FIRST, soon)
    assert session.in_turn(3, [FIRST], late) == [SECOND, THIRD, FIRST], "others have their turn"
    session.served(SECOND, late)
    assert session.in_turn(3, [SECOND], late) == [SECOND, THIRD, FIRST]
    session.change([], [SECOND])
    assert session.in_turn(2, [SECOND], late) == [THIRD, FIRST], "it was forgotten"


def test_a_new_session_takes_the_place_of_the_old_one() -> None:
    sessions, old = opened(FIRST)
    new = sessions.open(key(), THERE, [SECOND])
    assert len(sessions) == 1
    assert sessions.find(key()) is new
    assert sessions.connection_closed(HERE) == []
    assert old is not new
    assert sessions.connection_closed(THERE) == [new]


def test_sessions_end_with_the_connection_that_opened_them() -> None:
    sessions, session = opened(FIRST)
    other = sessions.open(key("n"), HERE, [SECOND])
    sessions.open(key("o"), THERE, [THIRD])
    assert sessions.connection_closed(HERE) == [session, other]
    assert sessions.connection_closed(HERE) == []
    assert len(sessions) == 1


def test_there_is_a_limit_to_sessions() -> None:
    sessions = ShareSessions(2)
    for member in ("a", "b"):
        sessions.open(key(member), HERE, [FIRST])
    with pytest.raises(Refused) as caught:
        sessions.open(key("c"), HERE, [FIRST])
    assert error_code(caught.value) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(key("b"), HERE, [SECOND])
    sessions.close(key("a"))
    sessions.open(key("c"), HERE, [FIRST])


def test_there_is_a_limit_to_their_partitions() -> None:
    sessions = ShareSessions(10, partitions_max=2)
    sessions.open(key("a"), HERE, [FIRST])
    with pytest.raises(Refused):
        sessions.open(key("b"), HERE, [FIRST, SECOND])
    with pytest.raises(Refused):
        sessions.step(key("a"), 1, [SECOND, THIRD])
    sessions.step(key("a"), 1, [FIRST, SECOND])
    sessions.step(key("a"), 2, [], [FIRST])
    sessions.open(key("b"), HERE, [FIRST])
    sessions.connection_closed(HERE)
    sessions.open(key("b"), HERE, [FIRST, SECOND])


def test_a_session_that_is_refused_leaves_the_one_before_it() -> None:
    sessions = ShareSessions(2, partitions_max=3)
    before = sessions.open(key("a"), HERE, [FIRST, SECOND])
    sessions.open(key("b"), HERE, [FIRST])
    with pytest.raises(Refused):
        sessions.open(key("a"), THERE, [FIRST, SECOND, THIRD])
    assert sessions.step(key("a"), 1) is before
    after = sessions.open(key("a"), THERE, [SECOND, THIRD])
    assert sessions.find(key("a")) is after, "the one before it makes room"
