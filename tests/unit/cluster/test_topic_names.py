"""Topic names: what is allowed, what collides."""

import pytest

from penstock.cluster.topic_names import check_topic_name, collision_key, fault_of, is_internal
from penstock.model.errors import Reason, Refused


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "-", "0"])
def test_allowed_names(name: str) -> None:
    assert fault_of(name) is None
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\x00", "a\n"])
def test_refused_names(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_topic_name(name)
    assert caught.value.reason == Reason.INVALID_TOPIC
    assert caught.value.detail.startswith("Topic name is invalid: ")


def test_names_that_metrics_cannot_tell_apart_share_a_key() -> None:
    assert collision_key("a.b") == collision_key("a_b")
    assert collision_key("a-b") != collision_key("a_b")


def test_internal_topics_are_known_by_name() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("consumer_offsets")
