"""The records of groups whose partitions the broker assigns are laid out as Kafka's."""

from uuid import UUID

import pytest

from penstock.groups.classic_member import ClassicMember, MemberProtocol
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    ExpressionRecord,
    GroupEpoch,
    MemberProfile,
    MemberRecord,
    MemberState,
    ModernRecord,
    ResolvedExpression,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.records import GroupRecordCodec
from penstock.model.ids import GroupId, MemberId
from penstock.records.batch import CorruptBatch

CODEC = GroupRecordCodec()
G, M = GroupId("g"), MemberId("m")
T = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC = "00112233445566778899aabbccddeeff"

LAID_OUT: list[tuple[ModernRecord, str, str]] = [
    (
        EpochRecord(G, GroupEpoch(7, -2)),
        "0003 0001 67",
        # The hash is a tagged field: one of them, tag 0, eight bytes.
        "0000 00000007 01 00 08 fffffffffffffffe",
    ),
    (
        MemberRecord(
            G,
            M,
            MemberProfile(
                instance_id="i",
                rack_id=None,
                client_id="c",
                client_host="/h",
                topics=frozenset({"u", "t"}),
                expression="x.*",
                rebalance_timeout_ms=30_000,
                assignor="uniform",
            ),
        ),
        "0005 0001 67 0001 6d",
        "0000 02 69 00 02 63 03 2f68 03 02 74 02 75 04 782e2a 00007530 08 756e69666f726d 00",
    ),
    (
        # As Kafka 4.3.1 has stored it, but for names.
        MemberRecord(
            G,
            M,
            MemberProfile(
                client_id="c",
                client_host="/h",
                topics=frozenset({"t"}),
                expression="",
                rebalance_timeout_ms=300_000,
                classic=ClassicMember(600_000, (MemberProtocol("range", b"\x00\x03\x07"),)),
            ),
        ),
        "0005 0001 67 0001 6d",
        # The classic member is a tagged field of 18 bytes.
        "0000 00 00 02 63 03 2f68 02 02 74 01 000493e0 00"
        " 01 00 12 01 000927c0 02 06 72616e6765 04 000307 00 00",
    ),
    (TargetEpochRecord(G, 5), "0006 0001 67", "0000 00000005 00"),
    (
        TargetRecord(G, M, {T: frozenset({2, 0})}),
        "0007 0001 67 0001 6d",
        f"0000 02 {TOPIC} 03 00000000 00000002 00 00",
    ),
    (
        CurrentRecord(
            G,
            M,
            CurrentAssignment(
                epoch=5,
                previous_epoch=4,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned={T: {0: 3, 1: 5}},
                revoking={T: {2: 3}},
            ),
        ),
        "0008 0001 67 0001 6d",
        "0000 00000005 00000004 01"
        f"02 {TOPIC} 03 00000000 00000001 01 00 09 03 00000003 00000005"
        f"02 {TOPIC} 02 00000002 01 00 05 02 00000003 00",
    ),
    (
        ExpressionRecord(G, "x.*", ResolvedExpression(frozenset({"xy"}), 3, 1_000)),
        "0010 0001 67 0003 782e2a",
        "0000 02 03 7879 0000000000000003 00000000000003e8 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), LAID_OUT)
def test_the_layout_is_kafkas(record: ModernRecord, key: str, value: str) -> None:
    encoded = (bytes.fromhex(key), bytes.fromhex(value))
    assert CODEC.encode(record) == encoded
    assert CODEC.decode(*encoded) == record


@pytest.mark.parametrize(("record", "key", "value"), LAID_OUT)
def test_without_a_value_it_is_gone(record: ModernRecord, key: str, value: str) -> None:
    gone = record._replace(value=None)
    assert CODEC.encode(gone) == (bytes.fromhex(key), None)
    assert CODEC.decode(bytes.fromhex(key), None) == gone


def test_partitions_without_epochs_are_as_old_as_their_member() -> None:
    """As Kafka stored them before KIP-1251."""
    key = bytes.fromhex("0008 0001 67 0001 6d")
    value = bytes.fromhex(f"0000 00000005 00000004 00 02 {TOPIC} 02 00000001 00 01 00")
    record = CODEC.decode(key, value)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.assigned == {T: {1: 5}}


def test_a_state_of_a_later_version_is_unknown() -> None:
    key = bytes.fromhex("0008 0001 67 0001 6d")
    record = CODEC.decode(key, bytes.fromhex("0000 00000005 00000004 09 01 01 00"))
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.state is MemberState.UNKNOWN


def test_fields_of_later_versions_are_skipped() -> None:
    value = bytes.fromhex("0000 00000007 02 00 08 0000000000000001 01 02 ffff")
    assert CODEC.decode(bytes.fromhex("0003 0001 67"), value) == EpochRecord(G, GroupEpoch(7, 1))


@pytest.mark.parametrize(
    "value", ["", "0001 00000007 00", "0000 000000", "0000 00000007 01 00 08 00"]
)
def test_what_does_not_fit_is_damage(value: str) -> None:
    with pytest.raises(CorruptBatch):
        CODEC.decode(bytes.fromhex("0003 0001 67"), bytes.fromhex(value))
