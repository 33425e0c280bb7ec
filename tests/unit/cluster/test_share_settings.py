"""Where a share group starts, as its setting says it."""

import pytest

from penstock.cluster.group_settings import check_group_configs, effective_group_setting
from penstock.cluster.settings import BadValue
from penstock.cluster.share_settings import (
    AUTO_OFFSET_RESET,
    RECORD_LOCK_DURATION_MS,
    StartKind,
    StartPosition,
    start_position,
)
from penstock.model.errors import Refused


def test_a_queue_starts_at_an_end_of_the_log() -> None:
    assert start_position("earliest") == StartPosition(StartKind.EARLIEST)
    assert start_position("latest") == StartPosition(StartKind.LATEST)


@pytest.mark.parametrize(
    ("duration", "ago_ms"),
    [
        ("P1D", 86_400_000),
        ("p1dt2h", 93_600_000),
        ("PT1.5S", 1_500),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT0S", 0),
        ("PT1H-30M", 1_800_000),
        ("+PT1S", 1_000),
        ("-PT-0.5S", 500),
    ],
)
def test_a_duration_is_read_as_java_reads_it(duration: str, ago_ms: int) -> None:
    assert start_position(f"by_duration:{duration}") == (StartKind.BY_DURATION, ago_ms)


@pytest.mark.parametrize(
    "text",
    [
        *("", "none", "Earliest", "LATEST", "by_duration", "By_Duration:PT1S"),
        *(
            f"by_duration:{duration}"
            for duration in (
                *("", "x", " P1D", "P", "PT", "P1DT", "P1Y", "PT1M1H", "PT.5S", "PT1.1234567890S"),
                *("-PT1S", "P-1D", "PT-0.5S", "P99999999999999999999D", "P" + "1" * 5_000 + "D"),
            )
        ),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="must be either 'earliest', 'latest' or of the format"):
        start_position(text)
    with pytest.raises(Refused, match="Invalid value"):
        check_group_configs("g", {AUTO_OFFSET_RESET: text}, {})


def test_a_text_acts_as_it_is_and_a_number_within_its_bounds() -> None:
    own = {AUTO_OFFSET_RESET: "earliest", RECORD_LOCK_DURATION_MS: "20000"}
    assert check_group_configs("g", own, {}) == own
    narrow = {"group.share.min.record.lock.duration.ms": "25000"}
    assert effective_group_setting(RECORD_LOCK_DURATION_MS, own, narrow) == "25000"
    assert effective_group_setting(AUTO_OFFSET_RESET, own, narrow) == "earliest"
    assert effective_group_setting(AUTO_OFFSET_RESET, {}, narrow) == "latest"
