"""The records of share groups are laid out as Kafka's."""

from uuid import UUID

import pytest

from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    GroupKind,
    KeptQueues,
    MemberProfile,
    MemberRecord,
    MemberState,
    ModernRecord,
    NamedPartitions,
    QueuesRecord,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.records import KINDS, GroupRecordCodec
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import SHARE_KINDS
from penstock.groups.state import GroupsState
from penstock.model.ids import GroupId, MemberId
from penstock.records.batch import CorruptBatch

CODEC = GroupRecordCodec()
SHARE = GroupKind.SHARE
G, M = GroupId("g"), MemberId("m")
T = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC = "00112233445566778899aabbccddeeff"
QUEUES = KeptQueues(
    initializing={T: NamedPartitions("t", frozenset({3}))},
    initialized={T: NamedPartitions("t", frozenset({2, 0}))},
    deleting={T: "t"},
)

LAID_OUT: list[tuple[ModernRecord, str, str]] = [
    (
        MemberRecord(
            G,
            M,
            MemberProfile(
                rack_id="r", client_id="c", client_host="/h", topics=frozenset({"u", "t"})
            ),
            SHARE,
        ),
        "000a 0001 67 0001 6d",
        "0000 02 72 02 63 03 2f68 03 02 74 02 75 00",
    ),
    (
        EpochRecord(G, GroupEpoch(7, -2), SHARE),
        "000b 0001 67",
        # Not tagged, unlike that of a consumer group.
        "0000 00000007 fffffffffffffffe 00",
    ),
    (TargetEpochRecord(G, 5, SHARE), "000c 0001 67", "0000 00000005 00"),
    (
        TargetRecord(G, M, {T: frozenset({2, 0})}, SHARE),
        "000d 0001 67 0001 6d",
        f"0000 02 {TOPIC} 03 00000000 00000002 00 00",
    ),
    (
        CurrentRecord(
            G, M, CurrentAssignment(epoch=5, previous_epoch=4, assigned={T: {0: 5, 1: 5}}), SHARE
        ),
        "000e 0001 67 0001 6d",
        f"0000 00000005 00000004 00 02 {TOPIC} 03 00000000 00000001 00 00",
    ),
    (
        QueuesRecord(G, QUEUES),
        "000f 0001 67",
        f"0000 02 {TOPIC} 02 74 02 00000003 00 "
        f"02 {TOPIC} 02 74 03 00000000 00000002 00 "
        f"02 {TOPIC} 02 74 00 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), LAID_OUT)
def test_a_record_has_kafkas_layout(record: ModernRecord, key: str, value: str) -> None:
    assert CODEC.encode(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert CODEC.decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "_"), LAID_OUT)
def test_a_record_without_a_value_says_that_it_is_gone(
    record: ModernRecord, key: str, _: str
) -> None:
    gone = record._replace(value=None)
    assert CODEC.encode(gone) == (bytes.fromhex(key), None)
    assert CODEC.decode(bytes.fromhex(key), None) == gone


@pytest.mark.parametrize(("_", "key", "value"), LAID_OUT)
def test_a_record_that_is_cut_off_is_refused(_: ModernRecord, key: str, value: str) -> None:
    data = bytes.fromhex(value)
    with pytest.raises(CorruptBatch):
        CODEC.decode(bytes.fromhex(key), data[: len(data) // 2])


def test_what_a_later_kafka_knows_of_a_target_is_skipped() -> None:
    """The moment of the assignment is a tagged field."""
    value = bytes.fromhex("0000 00000005 01 00 08 0000000000000001")
    assert CODEC.decode(bytes.fromhex("000c 0001 67"), value) == TargetEpochRecord(G, 5, SHARE)


def test_a_member_is_stable_whatever_is_stored() -> None:
    value = bytes.fromhex("0000 00000005 00000004 7f 01 00")
    record = CODEC.decode(bytes.fromhex("000e 0001 67 0001 6d"), value)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.STABLE


# The state that follows from them


def state_of(*records: ModernRecord) -> GroupsState:
    state = GroupsState()
    for record in records:
        state.apply(record)
    return state


def test_a_snapshot_holds_the_group() -> None:
    assert KINDS >= SHARE_KINDS
    state = state_of(*(record for record, _, _ in LAID_OUT))
    restored = GroupsState()
    restored.restore(state.snapshot()())
    assert restored.share(G) == state.share(G)
    assert restored.share(G) is not None
    assert restored.consumer(G) is None


def test_the_last_record_of_its_removal_ends_the_group() -> None:
    state = state_of(*(record for record, _, _ in LAID_OUT))
    group = state.share(G)
    assert group is not None
    for record in list(group.removal()):
        state.apply(record)
    assert not state.exists(G)


def test_a_name_may_get_a_group_of_another_kind() -> None:
    """Late news of the first group does not touch the second one."""
    consumer, share = EpochRecord(G, GroupEpoch(3, 0)), EpochRecord(G, GroupEpoch(2, 0), SHARE)
    state = state_of(consumer, consumer._replace(value=None), share)
    group = state.modern(G)
    assert isinstance(group, ShareGroup)
    state.apply(consumer._replace(value=None))
    state.apply(MemberRecord(G, M, None))
    assert state.modern(G) is group
    state.apply(share._replace(value=None))
    state.apply(consumer)
    assert type(state.modern(G)) is ModernGroup
