"""Long runs say what they did, whether they fail or not: `make soak` is read by a person."""

import os
from collections.abc import Callable

import pytest

Tell = Callable[[str], None]


@pytest.fixture
def tell(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Tell:
    """Prints one line past pytest's capture."""

    def say(text: str) -> None:
        with capfd.disabled():
            print(f"\n{request.node.name}: {text}", flush=True)

    return say


@pytest.fixture
def seed() -> int:
    """What happens when is drawn from this number; SOAK_SEED repeats a run's choices."""
    return int(os.environ.get("SOAK_SEED", str(int.from_bytes(os.urandom(4), "big"))))
