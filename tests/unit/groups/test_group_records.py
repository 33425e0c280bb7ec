"""The records lie in the log byte for byte as Kafka lays them out, and are read in all versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.records import (
    CommittedOffset,
    ForeignRecord,
    GroupMetadata,
    GroupRecord,
    GroupRecordCodec,
    GroupRemoved,
    GroupStored,
    MemberMetadata,
    OffsetRemoved,
    OffsetStored,
)
from penstock.groups.state import GroupsState
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.records.batch import CorruptBatch

CODEC = GroupRecordCodec()

OFFSET_KEY = bytes.fromhex(
    "0001"  # version: an offset
    "0001 67"  # group "g"
    "0001 74"  # topic "t"
    "00000007"  # partition
)
OFFSET_VALUE = bytes.fromhex(
    "0003"  # version
    "000000000000002a"  # offset 42
    "00000005"  # leader epoch
    "0004 6e6f7465"  # metadata "note"
    "00000000000f4240"  # committed at 1,000,000
)
OFFSET_VALUE_EXPIRING = bytes.fromhex(
    "0001"
    "000000000000002a"
    "0000"  # no metadata
    "00000000000f4240"
    "00000000001e8480"  # expires at 2,000,000
)
GROUP_KEY = bytes.fromhex(
    "0002"  # version: a group
    "0001 67"
)
GROUP_VALUE = bytes.fromhex(
    "0003"  # version
    "0008 636f6e73756d6572"  # protocol type "consumer"
    "00000009"  # generation
    "0005 72616e6765"  # protocol "range"
    "0003 6d2d31"  # leader "m-1"
    "00000000000f4240"  # since 1,000,000
    "00000001"  # one member
    "0003 6d2d31"  # id
    "0001 69"  # instance "i"
    "0001 63"  # client id
    "0002 2f68"  # host "/h"
    "00007530"  # rebalance timeout 30,000
    "00002710"  # session timeout 10,000
    "00000002 aabb"  # subscription
    "00000003 010203"  # assignment
)
EMPTY_GROUP_VALUE = bytes.fromhex(
    "0003"
    "0008 636f6e73756d6572"
    "0000000a"
    "ffff"  # no protocol
    "ffff"  # no leader
    "00000000000f4240"
    "00000000"
)

MEMBER = MemberMetadata(
    member_id=MemberId("m-1"),
    instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=30_000,
    session_timeout_ms=10_000,
    subscription=b"\xaa\xbb",
    assignment=b"\x01\x02\x03",
)
GENERATION = GroupMetadata(
    protocol_type="consumer",
    generation=9,
    protocol="range",
    leader=MemberId("m-1"),
    state_timestamp_ms=1_000_000,
    members=(MEMBER,),
)
EMPTY = GroupMetadata(
    protocol_type="consumer",
    generation=10,
    protocol=None,
    leader=None,
    state_timestamp_ms=1_000_000,
)
G, T = GroupId("g"), TopicName("t")


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            OffsetStored(G, T, 7, CommittedOffset(42, 5, "note", 1_000_000)),
            OFFSET_KEY,
            OFFSET_VALUE,
        ),
        (
            OffsetStored(G, T, 7, CommittedOffset(42, -1, "", 1_000_000, 2_000_000)),
            OFFSET_KEY,
            OFFSET_VALUE_EXPIRING,
        ),
        (OffsetRemoved(G, T, 7), OFFSET_KEY, None),
        (GroupStored(G, GENERATION), GROUP_KEY, GROUP_VALUE),
        (GroupStored(G, EMPTY), GROUP_KEY, EMPTY_GROUP_VALUE),
        (GroupRemoved(G), GROUP_KEY, None),
    ],
)
def test_layout(record: GroupRecord, key: bytes, value: bytes | None) -> None:
    assert CODEC.encode(record) == (key, value)
    assert CODEC.decode(key, value) == record


def test_older_and_newer_offset_values_are_read() -> None:
    def read(text: str) -> CommittedOffset:
        record = CODEC.decode(OFFSET_KEY, bytes.fromhex(text))
        assert isinstance(record, OffsetStored)
        return record.committed

    plain = CommittedOffset(42, -1, "note", 1_000_000)
    assert read("0000 000000000000002a 0004 6e6f7465 00000000000f4240") == plain
    assert read("0002 000000000000002a 0004 6e6f7465 00000000000f4240") == plain
    flexible = "0004 000000000000002a 00000005 05 6e6f7465 00000000000f4240 01 00 02 abcd"
    assert read(flexible) == plain._replace(leader_epoch=5)


def test_older_and_newer_group_values_are_read() -> None:
    head = "0008 636f6e73756d6572 00000009 0005 72616e6765 0003 6d2d31"
    oldest = f"0000 {head} 00000001 0003 6d2d31 0001 63 0002 2f68 00002710 00000000 00000000"
    record = CODEC.decode(GROUP_KEY, bytes.fromhex(oldest))
    assert isinstance(record, GroupStored)
    (member,) = record.metadata.members
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (10_000, 10_000)
    assert (record.metadata.state_timestamp_ms, member.instance_id) == (-1, None)
    flexible = (
        "0004 09 636f6e73756d6572 00000009 06 72616e6765 04 6d2d31 00000000000f4240 02"
        "04 6d2d31 02 69 02 63 03 2f68 00007530 00002710 03 aabb 04 010203 00 00"
    )
    assert CODEC.decode(GROUP_KEY, bytes.fromhex(flexible)) == GroupStored(G, GENERATION)


def test_records_of_other_kinds_are_kept_apart() -> None:
    """The groups of Kafka Streams have keys of version 17 and above."""
    key = bytes.fromhex("0011 0001 67")
    assert CODEC.decode(key, b"?") == ForeignRecord(key, b"?")
    assert CODEC.encode(ForeignRecord(key, b"?")) == (key, b"?")
    state = GroupsState()
    state.apply(ForeignRecord(key, b"?"))
    assert list(state.group_ids()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (OFFSET_KEY[:-1], OFFSET_VALUE),
        (OFFSET_KEY, OFFSET_VALUE[:-1]),
        (OFFSET_KEY, b"\x00\x05" + OFFSET_VALUE[2:]),
        (GROUP_KEY, GROUP_VALUE[:-1]),
        (GROUP_KEY, EMPTY_GROUP_VALUE[:-4] + b"\x7f\xff\xff\xff"),
        (b"\x00\x02\x00\x01\xff", None),
        (b"\x00\x02\xff\xff", None),
    ],
)
def test_damage_is_told_from_data(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        CODEC.decode(key, value)


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_damage(key: bytes, value: bytes | None) -> None:
    try:
        CODEC.decode(key, value)
    except CorruptBatch:
        return


texts = st.text(max_size=10)
offsets = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    texts,
    st.integers(0, 2**50),
    st.just(-1),
)
names = st.sampled_from(["a", "b", "ü"])
records = st.one_of(
    st.builds(OffsetStored, names, names, st.integers(0, 3), offsets),
    st.builds(OffsetRemoved, names, names, st.integers(0, 3)),
    st.builds(GroupStored, names, st.sampled_from([GENERATION, EMPTY])),
    st.builds(GroupRemoved, names),
)


@given(st.lists(records, max_size=30), st.lists(records, max_size=10))
def test_a_snapshot_holds_the_whole_state_of_its_moment(
    history: list[GroupRecord], later: list[GroupRecord]
) -> None:
    state, going_on, restored = GroupsState(), GroupsState(), GroupsState()
    for record in history:
        state.apply(record)
        going_on.apply(record)
    encode = going_on.snapshot()
    for record in later:
        going_on.apply(record)
    restored.restore(encode())
    assert list(restored.group_ids()) == list(state.group_ids())
    for group_id in state.group_ids():
        assert restored.offsets(group_id) == state.offsets(group_id)
        assert restored.metadata(group_id) == state.metadata(group_id)


@given(st.lists(records, max_size=30))
def test_replay_of_what_compaction_keeps_gives_the_same_state(history: list[GroupRecord]) -> None:
    state, compacted = GroupsState(), GroupsState()
    latest: dict[bytes | None, GroupRecord] = {}
    for record in history:
        state.apply(record)
        key, _ = CODEC.encode(record)
        latest.pop(key, None)
        latest[key] = record
    for record in latest.values():
        compacted.apply(record)
    assert set(compacted.group_ids()) == set(state.group_ids())
    for group_id in state.group_ids():
        assert compacted.offsets(group_id) == state.offsets(group_id)


def test_torn_snapshot_is_damage() -> None:
    state = GroupsState()
    state.apply(GroupStored(G, GENERATION))
    whole = state.snapshot()()
    for length in (3, 20, len(whole) - 1):
        with pytest.raises(CorruptBatch):
            GroupsState().restore(whole[:length])
