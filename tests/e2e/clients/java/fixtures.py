"""The fixture `java`, for test files that name this module in `pytest_plugins`."""

from collections.abc import Iterator

import pytest

from tests.e2e.clients.java import Java, missing


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """One JVM for all tests of a run that need it."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    machine = Java(tmp_path_factory.mktemp("java") / "stderr")
    yield machine
    machine.close()
