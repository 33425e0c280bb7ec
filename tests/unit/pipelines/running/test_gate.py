"""No batch begins after a stop was asked for; one that began is waited for until it is noted."""

from pathlib import Path

import pytest

from penstock.pipelines.running.gate import StopGate, StopRequested
from penstock.pipelines.running.stopping import is_between_batches, is_stop
from tests.unit.pipelines.running.rig import make_checkpoint


def test_a_batch_that_comes_after_the_request_does_not_begin() -> None:
    gate = StopGate()
    with gate.batch("flow", 0):
        gate.request()
    began = False
    said = "flow was asked to stop before batch 1"
    with pytest.raises(StopRequested, match=said), gate.batch("flow", 1):
        began = True
    assert not began
    assert gate.under_way("flow") is None
    assert gate.last_left("flow") == 0


def test_a_stop_waits_for_the_batch_and_for_its_note_in_the_checkpoint(tmp_path: Path) -> None:
    gate = StopGate()
    make_checkpoint(tmp_path, planned=3, committed=2)
    assert is_between_batches(gate, "flow", tmp_path)
    with gate.batch("flow", 3):
        gate.request()
        assert not is_between_batches(gate, "flow", tmp_path)
        assert is_between_batches(gate, "another", tmp_path)
    assert not is_between_batches(gate, "flow", tmp_path)
    make_checkpoint(tmp_path, planned=3, committed=3)
    assert is_between_batches(gate, "flow", tmp_path)


def test_a_batch_that_failed_has_nothing_to_be_noted(tmp_path: Path) -> None:
    gate = StopGate()
    make_checkpoint(tmp_path, planned=0)
    with pytest.raises(ZeroDivisionError), gate.batch("flow", 0):
        raise ZeroDivisionError
    assert is_between_batches(gate, "flow", tmp_path)


def test_the_end_by_the_gate_is_told_from_a_failure() -> None:
    assert is_stop(StopRequested("x"))
    assert is_stop(RuntimeError("penstock.pipelines.running.gate.StopRequested: The flow a was"))
    assert not is_stop(RuntimeError("no"))
    assert not is_stop(None)
