"""When committed offsets are kept, refused and forgotten."""

import pytest

from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.groups.group import Group
from penstock.groups.offsets import (
    FetchedOffset,
    FetchedTopic,
    decide_commit,
    decide_expiry,
    decide_group_removal,
    decide_offset_removal,
    decide_topic_removal,
    read_offsets,
)
from penstock.groups.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecordCodec,
    GroupRemoved,
    GroupStored,
    OffsetRemoved,
    OffsetStored,
)
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, TopicName
from tests.unit.groups.driver import GROUP, Driver, FakeClock

T, U = TopicName("t"), TopicName("u")
RETENTION_MS = 1_000


def committed(at_ms: int = 0, **changes: int) -> CommittedOffset:
    return CommittedOffset(5, -1, "note", at_ms)._replace(**changes)  # type: ignore[arg-type]


def state_with(*offsets: tuple[TopicName, int, CommittedOffset]) -> GroupsState:
    state = GroupsState()
    for topic, partition, offset in offsets:
        state.apply(OffsetStored(GROUP, topic, partition, offset))
    return state


def empty_group(since_ms: int = 0) -> Group:
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=3,
        protocol=None,
        leader=None,
        state_timestamp_ms=since_ms,
    )
    return Group.restored(GROUP, metadata, settings=GroupSettings(), clock=FakeClock())


def simple_group() -> Group:
    return Group(GROUP, settings=GroupSettings(), clock=FakeClock())


def expire(state: GroupsState, group: Group, now_ms: int) -> list[object]:
    return list(decide_expiry(state, group, now_ms=now_ms, retention_ms=RETENTION_MS))


def test_commit_keeps_the_metadata_and_refuses_what_is_too_long() -> None:
    command = CommitOffsets(
        group_id=GROUP,
        offsets=(OffsetToCommit(T, 0, 5, 2, "note"), OffsetToCommit(T, 1, 6, 2, "x" * 11)),
    )
    settings = GroupSettings(offset_metadata_length_max=10)
    records, outcomes = decide_commit(command, now_ms=7, settings=settings)
    assert records == [OffsetStored(GROUP, T, 0, CommittedOffset(5, 2, "note", 7))]
    assert outcomes == [None, Reason.OFFSET_METADATA_TOO_LARGE]


def test_a_commit_is_bounded() -> None:
    offsets = tuple(OffsetToCommit(T, n, 5, -1, "note") for n in range(100))
    command = CommitOffsets(group_id=GROUP, offsets=offsets)
    decide_commit(command, now_ms=7, settings=GroupSettings(commit_bytes_max=6_100))
    with pytest.raises(Refused) as refused:
        decide_commit(command, now_ms=7, settings=GroupSettings(commit_bytes_max=5_900))
    assert refused.value.reason is Reason.INVALID_COMMIT_OFFSET_SIZE


@pytest.mark.parametrize(
    ("retention_ms", "expires_ms"), [(100, 107), (2**63 - 1, 2**63 - 1), (-(2**63), 0)]
)
def test_retention_of_old_clients_becomes_a_moment(retention_ms: int, expires_ms: int) -> None:
    command = CommitOffsets(
        group_id=GROUP, retention_ms=retention_ms, offsets=(OffsetToCommit(T, 0, 5, -1, ""),)
    )
    (record,), _ = decide_commit(command, now_ms=7, settings=GroupSettings())
    assert isinstance(record, OffsetStored)
    assert record.committed.expire_timestamp_ms == expires_ms
    key, value = GroupRecordCodec().encode(record)
    assert GroupRecordCodec().decode(key, value) == record


def test_reads_give_what_is_there_and_what_is_not() -> None:
    state = state_with((T, 0, committed()), (U, 3, committed()))
    assert read_offsets(state, GROUP, [(T, [0, 1]), (TopicName("?"), [0])]) == [
        FetchedTopic(T, [FetchedOffset(0, committed()), FetchedOffset(1, None)]),
        FetchedTopic(TopicName("?"), [FetchedOffset(0, None)]),
    ]
    assert [topic.topic for topic in read_offsets(state, GROUP, None)] == [T, U]
    assert read_offsets(state, GroupId("?"), None) == []


def test_removal_leaves_what_the_group_reads() -> None:
    driver = Driver()
    driver.stable({})
    state = state_with((T, 0, committed()), (U, 0, committed()))
    records, outcomes = decide_offset_removal(state, driver.group, [(T, 0), (U, 0), (U, 9)])
    assert records == [OffsetRemoved(GROUP, U, 0)]
    assert outcomes == [Reason.GROUP_SUBSCRIBED_TO_TOPIC, None, None]


def test_group_goes_with_its_offsets() -> None:
    state = state_with((T, 0, committed()), (U, 1, committed()))
    state.apply(GroupStored(GROUP, Driver().group.generation_record().metadata))
    for record in decide_group_removal(state, GROUP):
        state.apply(record)
    assert not state.exists(GROUP)


def test_offsets_go_with_their_topic() -> None:
    state = state_with((T, 0, committed()), (T, 1, committed()), (U, 1, committed()))
    for record in decide_topic_removal(state, lambda topic: topic == T):
        state.apply(record)
    assert list(state.offsets(GROUP)) == [U]


def test_offsets_of_an_empty_group_expire_by_when_it_became_empty() -> None:
    state = state_with((T, 0, committed(at_ms=0)))
    group = empty_group(since_ms=500)
    assert expire(state, group, 500 + RETENTION_MS - 1) == []
    assert expire(state, group, 500 + RETENTION_MS) == [
        OffsetRemoved(GROUP, T, 0),
        GroupRemoved(GROUP),
    ]


def test_offsets_without_membership_expire_by_their_commit() -> None:
    state = state_with((T, 0, committed(at_ms=0)), (T, 1, committed(at_ms=500)))
    assert expire(state, simple_group(), RETENTION_MS) == [OffsetRemoved(GROUP, T, 0)]


def test_own_retention_of_old_clients_is_respected() -> None:
    state = state_with((T, 0, committed(at_ms=0, expire_timestamp_ms=10 * RETENTION_MS)))
    assert expire(state, simple_group(), RETENTION_MS) == []
    assert expire(state, simple_group(), 10 * RETENTION_MS) != []


def test_working_group_keeps_what_it_reads_and_drops_what_it_gave_up() -> None:
    driver = Driver()
    driver.stable({})
    state = state_with((T, 0, committed()), (U, 0, committed()))
    assert expire(state, driver.group, 10**9) == [OffsetRemoved(GROUP, U, 0)]


@pytest.mark.parametrize("changes", [{}, {"protocol_type": "connect"}])
def test_nothing_expires_during_a_rebalance_or_in_groups_of_other_kinds(
    changes: dict[str, object],
) -> None:
    driver = Driver()
    (leader, _) = driver.stable(changes, changes)
    if not changes:
        driver.join(member_id=leader)
        assert driver.group.state is GroupState.PREPARING_REBALANCE
    state = state_with((T, 0, committed()), (U, 0, committed()))
    assert expire(state, driver.group, 10**9) == []


def test_group_that_somebody_is_about_to_join_is_not_removed() -> None:
    driver = Driver()
    driver.join(takes_member_id=True)
    assert expire(GroupsState(), driver.group, 10**9) == []
