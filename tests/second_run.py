"""Gives a failed test of real processes a second run, and reports it as flaky if that one passes.

Tests of tests/e2e and tests/spark share a busy machine with other processes, so one of them can
fail for a reason that is not a fault of the product. The summary names each one: it is still a bug
to find. More than a few of them fail the whole run. Unit tests and simulations decide everything
themselves and never run twice.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

ON_REAL_PROCESSES = (("tests", "e2e"), ("tests", "spark"))
MOST_FLAKY = 3


def allow_second_run(items: Iterable[pytest.Item], root: Path) -> None:
    folders = tuple(str(root.joinpath(*parts)) + os.sep for parts in ON_REAL_PROCESSES)
    for item in items:
        if str(item.path).startswith(folders) and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.flaky(reruns=1))


def flaky(reporter: pytest.TerminalReporter) -> dict[str, pytest.TestReport]:
    """The first, failed run of each test whose second run passed."""
    twice = {
        report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, ())
    }
    return {
        report.nodeid: report
        for report in reporter.stats.get("rerun", ())
        if report.nodeid not in twice
    }


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        reporter is not None
        and exitstatus == pytest.ExitCode.OK
        and len(flaky(reporter)) > MOST_FLAKY
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = flaky(terminalreporter)
    if not found:
        return
    terminalreporter.section("flaky: failed, then passed when run again")
    for nodeid, report in found.items():
        terminalreporter.write_line(nodeid, bold=True)
        terminalreporter.write_line(report.longreprtext)
    terminalreporter.write_line(f"{len(found)} flaky, at most {MOST_FLAKY} are allowed:")
    for nodeid in found:
        terminalreporter.write_line(f"FLAKY {nodeid}")
