"""The fixtures `java` and `newer_java`, for test files that name this in `pytest_plugins`."""

from collections.abc import Iterator

import pytest

from tests.e2e.clients.java import Java, install_newer_client, missing


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """One JVM for all tests of a run that need it."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    machine = Java(tmp_path_factory.mktemp("java") / "stderr")
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def newer_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """One JVM with a client that is newer than the version that we compare with."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    machine = Java(tmp_path_factory.mktemp("newer-java") / "stderr", install_newer_client())
    yield machine
    machine.close()
