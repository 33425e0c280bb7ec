"""Rules for every test: slow ones and soaks only when asked for, no silent skips in CI.

Long groups begin first. A test may be a coroutine; it runs in an event loop of its own.

Nothing fails because the machine is slow: Hypothesis does not judge how long its examples take.
"""

import asyncio
import inspect
import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from tests.second_run import allow_second_run, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]

UNIT = Path(__file__).resolve().parent / "unit"
# Each of these groups keeps one worker busy for minutes. The first that uses Spark makes what the
# later ones start faster with (tests/spark/class_archive.py): until then others run beside it.
LONG_GROUPS = (
    "spark-pipelines",
    "cluster",
    "cluster-clients",
    "apache-kafka",
    "spark-processes",
    "spark",
    "spark-server",
)

# Only ends what hangs, and then shows where: the limit of pytest-timeout would show the loop.
COROUTINE_TIMEOUT_S = 100

hypothesis.settings.register_profile(
    "patient",
    parent=hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


# Only run when asked for, by an option of the same name.
MARKS_OF_LONG_TESTS = {
    "slow": "takes long and rarely fails; runs only with --slow (make slow, and CI)",
    "soak": "takes minutes; runs only with --soak (make soak)",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for mark in MARKS_OF_LONG_TESTS:
        parser.addoption(f"--{mark}", action="store_true", help=f"also run the tests marked {mark}")


def pytest_configure(config: pytest.Config) -> None:
    for mark, what in MARKS_OF_LONG_TESTS.items():
        config.addinivalue_line("markers", f"{mark}: {what}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=rank)
    allow_second_run(items, config.rootpath)
    left_out = {mark for mark in MARKS_OF_LONG_TESTS if not config.getoption(f"--{mark}")}
    chosen, others = [], []
    for item in items:
        is_left_out = any(mark.name in left_out for mark in item.iter_markers())
        (others if is_left_out else chosen).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def rank(item: pytest.Item) -> int:
    """What begins late must be short, or the other workers are idle while one works on."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None and mark.args[0] in LONG_GROUPS:
        return LONG_GROUPS.index(mark.args[0])
    return len(LONG_GROUPS) + is_unit_test(item.path)


@cache
def is_unit_test(path: Path) -> bool:
    """Asked for each of thousands of tests, which lie in some hundred files."""
    return path.is_relative_to(UNIT)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Returns whether it ran the test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        async with asyncio.timeout(COROUTINE_TIMEOUT_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """CI installs every tool, so a skip there hides a fault: it counts as a failure."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} would be skipped, which CI forbids: {report.longrepr}"
    return report
