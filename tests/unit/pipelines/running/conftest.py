"""Fixtures of tests that run flows without Spark."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.pipelines.running import flows_run
from tests.unit.pipelines.running.flows_rig import FakeQuery, Rig


@pytest.fixture
def make_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    monkeypatch.setattr(flows_run, "POLL_S", 0.0)

    def make(**queries: list[FakeQuery]) -> Rig:
        rig = Rig(tmp_path, queries)
        monkeypatch.setattr(flows_run, "start", rig.start)
        return rig

    return make
