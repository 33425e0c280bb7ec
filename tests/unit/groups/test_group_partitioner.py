"""Groups are spread over coordinators exactly as Kafka spreads them."""

import pytest

from penstock.groups.partitioner import java_hash, partition_of
from penstock.model.ids import GroupId


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("😀", 0xD83D * 31 + 0xDE00),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partitions_are_never_negative() -> None:
    """The hash of this well-known word is the one integer without an absolute value."""
    assert partition_of(GroupId("polygenelubricants"), 50) == 0
    assert partition_of(GroupId("hello"), 50) == 22
    assert all(0 <= partition_of(GroupId(f"group-{n}"), 8) < 8 for n in range(100))
