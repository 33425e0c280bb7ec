"""Simulators do nothing but compute: how long they take says only how busy the machine is."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# Only ends what hangs. A mutation may take a hundred seeds to be caught.
TEST_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
