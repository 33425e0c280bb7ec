"""Proves that equal offsets always give the same text, and that any other text is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicPartition
from penstock.spark.planning.errors import PlanError
from penstock.spark.planning.offsets import from_json, to_json
from tests.unit.spark.planning.places import at

OFFSETS = st.dictionaries(
    st.builds(at, st.integers(0, 2**31 - 1), st.sampled_from(["orders", "clicks", "a.b-c_d"])),
    st.integers(0, 2**63 - 1),
)


def test_the_form_is_that_of_sparks_kafka_source_in_a_fixed_order() -> None:
    offsets = {at(10): 3, at(2): 7, at(0, "clicks"): 0}
    assert json.dumps(to_json(offsets)) == '{"clicks": {"0": 0}, "orders": {"2": 7, "10": 3}}'
    assert to_json({}) == {}


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_the_same_text_and_come_back(
    offsets: dict[TopicPartition, int], random: Any
) -> None:
    items = list(offsets.items())
    random.shuffle(items)
    text = json.dumps(to_json(offsets))
    assert json.dumps(to_json(dict(items))) == text
    assert from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    "wrong",
    [
        {"orders": 5},
        {"orders": [5]},
        {"orders": {"zero": 5}},
        {"orders": {"-1": 5}},
        {"orders": {"0": "5"}},
        {"orders": {"0": -1}},
        {"orders": {"0": True}},
        {"orders": {"0": None}},
        {"orders": {0: 5}},
    ],
)
def test_what_is_no_offset_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="The checkpoint must hold offsets in the form"):
        from_json(wrong)
