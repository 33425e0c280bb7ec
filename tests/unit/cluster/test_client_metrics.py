"""Proves that subscriptions to clients' metrics are checked, and match the clients they name."""

import time

import pytest

from penstock.cluster.client_metrics import (
    ATTRIBUTE_LENGTH_MAX,
    INTERVAL_MS_DEFAULT,
    check_client_metrics,
    subscription,
)
from penstock.model.errors import Reason, Refused


def refusal(name: str = "s", **configs: str) -> Reason:
    with pytest.raises(Refused) as caught:
        check_client_metrics(name, {key.replace("_", "."): text for key, text in configs.items()})
    return caught.value.reason


def is_for(match: str, **attributes: str) -> bool:
    checked = check_client_metrics("s", {"match": match})
    return subscription(checked).is_for(attributes)


def test_settings_are_kept_in_their_normal_form_and_have_defaults() -> None:
    checked = check_client_metrics("s", {"metrics": " a. , b ", "interval.ms": "0100"})
    assert checked == {"metrics": "a.,b", "interval.ms": "100"}
    assert subscription(checked).metrics == {"a.", "b"}
    assert subscription({}) == (frozenset(), INTERVAL_MS_DEFAULT, {})


@pytest.mark.parametrize("interval_ms", ["99", "3600001", "-1"])
def test_an_interval_out_of_bounds_makes_a_bad_request(interval_ms: str) -> None:
    assert refusal(interval_ms=interval_ms) is Reason.INVALID_REQUEST


def test_what_is_not_a_setting_or_not_a_value_is_refused() -> None:
    assert refusal(name="") is Reason.INVALID_REQUEST
    assert refusal(unknown="1") is Reason.INVALID_REQUEST
    assert refusal(interval_ms="often") is Reason.INVALID_CONFIG


@pytest.mark.parametrize(
    "match",
    ["client_id", "client_id=", "=x", "color=red", "client_id=a=b", "client_id=(", "client_id=[a"],
)
def test_a_pattern_that_is_none_is_refused(match: str) -> None:
    assert refusal(match=match) is Reason.INVALID_CONFIG


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "(a{2}){9}",
        ".*.*.*.*x",
        r"(a)\1",
        "(?=a)b",
        "[a]*[a]*[a]*[a]*b",
        "[]x]+[]x]+[]x]+[]x]+b",
    ],
)
def test_a_pattern_that_could_take_long_is_refused(pattern: str) -> None:
    assert refusal(match=f"client_id={pattern}") is Reason.INVALID_CONFIG


@pytest.mark.parametrize("pattern", [".*.*.*x", "a*a*a*b", "[a]+a+.+b"])
def test_the_slowest_pattern_that_is_taken_is_fast_enough(pattern: str) -> None:
    started = time.process_time()
    assert not is_for(f"client_id={pattern}", client_id="a" * ATTRIBUTE_LENGTH_MAX)
    assert time.process_time() - started < 1.0


def test_all_patterns_have_to_match_the_whole_text() -> None:
    match = r"client_id=app-\d+ , client_software_name=(librdkafka|[Cc]onfluent.*)"
    assert is_for(match, client_id="app-12", client_software_name="librdkafka")
    assert not is_for(match, client_id="app-12", client_software_name="java")
    assert not is_for(match, client_id="app-12x", client_software_name="librdkafka")
    assert not is_for(match, client_id="app-12")
    assert not is_for("client_id=a+", client_id="a" * (ATTRIBUTE_LENGTH_MAX + 1))
    assert is_for("", client_id="anything")
