"""The pytest plug-in: fixtures that give a test, or a whole session, a real broker or cluster.

Every project with Penstock installed loads this file, so it imports nothing but pytest; the
broker's code comes with the first test that asks for a broker.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker
    from penstock.testing.clusters import ProcessCluster

MODES = ("process", "thread")
MARKER = (
    "penstock(mode=None, settings=None): how this test's penstock_broker runs, "
    "'process' or 'thread', and its broker settings by Kafka's names"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("penstock", "brokers for tests")
    options.addoption(
        "--penstock-mode",
        choices=MODES,
        help="where brokers run: in a child process (default) or in a thread of this one",
    )
    parser.addini("penstock_mode", "where brokers run: process or thread", default=MODES[0])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def penstock_settings() -> Mapping[str, str]:
    """Broker settings by Kafka's names; override it to change them for all tests."""
    return {}


@pytest.fixture(scope="session")
def penstock_session_broker(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    penstock_settings: Mapping[str, str],
) -> "Iterator[Broker]":
    """One broker for the whole session: fast, but tests must use topics of their own."""
    yield from _run_broker(_mode(pytestconfig, None), tmp_path_factory, penstock_settings)


@pytest.fixture
def penstock_broker(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    penstock_settings: Mapping[str, str],
) -> "Iterator[Broker]":
    """A broker for this test alone: empty at its start and gone at its end."""
    wanted = _wanted(request)
    settings = {**penstock_settings, **(wanted.get("settings") or {})}
    yield from _run_broker(_mode(pytestconfig, wanted.get("mode")), tmp_path_factory, settings)


@pytest.fixture
def penstock_cluster(
    tmp_path_factory: pytest.TempPathFactory, penstock_settings: Mapping[str, str]
) -> "Iterator[Callable[..., ProcessCluster]]":
    """Makes clusters for this test alone: `penstock_cluster(nodes=3, settings={})`."""
    import shutil
    from contextlib import ExitStack

    from penstock.testing.clusters import ProcessCluster

    directory = tmp_path_factory.mktemp("penstock-cluster")
    made = 0

    def make(nodes: int = 3, settings: Mapping[str, str] | None = None) -> ProcessCluster:
        nonlocal made
        made += 1
        cluster = ProcessCluster(
            directory / str(made), nodes=nodes, settings={**penstock_settings, **(settings or {})}
        )
        return ends.enter_context(cluster)

    with ExitStack() as ends:
        ends.callback(shutil.rmtree, directory, ignore_errors=True)
        yield make


def _wanted(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    marker = request.node.get_closest_marker("penstock")
    return {} if marker is None else marker.kwargs


def _mode(config: pytest.Config, wanted: str | None) -> str:
    """A test's own mark beats the command line, which beats the project's settings."""
    mode = wanted or config.getoption("--penstock-mode") or config.getini("penstock_mode")
    if mode not in MODES:
        raise pytest.UsageError(f"penstock mode {mode!r} is not one of {', '.join(MODES)}")
    return str(mode)


def _run_broker(
    mode: str, directories: pytest.TempPathFactory, settings: Mapping[str, str]
) -> "Iterator[Broker]":
    import shutil

    from penstock.testing.brokers import ProcessBroker, ThreadBroker

    kind = ProcessBroker if mode == "process" else ThreadBroker
    directory = directories.mktemp("penstock")
    try:
        with kind(directory / "data", settings=settings) as broker:
            yield broker
    finally:
        shutil.rmtree(directory, ignore_errors=True)
