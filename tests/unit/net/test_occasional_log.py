"""A flood of the same complaint becomes one line per interval."""

import logging

import pytest

from penstock.net.occasional_log import OccasionalLog
from tests.unit.clocks import ManualClock

logger = logging.getLogger("penstock.test")


def test_one_line_per_kind_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = OccasionalLog(clock, interval_seconds=5)
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            log.warning(logger, "bad", "bad frame %d", number)
        log.warning(logger, "full", "no room for %s", "x")
        clock.ms += 5_000
        log.warning(logger, "bad", "bad frame %d", 100)
    assert [record.getMessage() for record in caplog.records] == [
        "bad frame 0",
        "no room for x",
        "bad frame 100 (99 more like it)",
    ]
