"""Topics are found in what consumers of all versions send, and other bytes are none."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.subscriptions import subscribed_topics
from tests.unit.groups.driver import subscription


def test_topics_of_a_consumer() -> None:
    assert subscribed_topics(subscription("t", "ü")) == frozenset({"t", "ü"})
    assert subscribed_topics(subscription()) == frozenset()
    newer = b"\x00\x03" + subscription("t")[2:] + b"owned partitions, generation, rack"
    assert subscribed_topics(newer) == frozenset({"t"})


def test_other_bytes_are_not_a_subscription() -> None:
    whole = subscription("topic")
    for data in (b"", whole[:5], whole[:9], b"\x00\x00\xff\xff\xff\xff"):
        assert subscribed_topics(data) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, -1)) is None
    assert subscribed_topics(struct.pack(">hi", 0, 2**31 - 1) + b"\x00\x00" * 9) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_topics_or_nothing(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or isinstance(topics, frozenset)
