"""Compiled kernels are used where they pay and can be kept; everything works without them."""

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.columns import numba_reading, numpy_reading
from penstock.columns.kernels import COMPILED_RECORDS_MIN, KernelChoice, ReadingKernels

_MODULE = "penstock.columns.numba_reading"


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that loads kernels at the moment would have the turn."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _choice(forced: str | None = None, module: str = _MODULE) -> KernelChoice[ReadingKernels]:
    return KernelChoice(plain=numpy_reading, compiled_module=module, forced=forced)


def test_numpy_serves_until_enough_records_have_come() -> None:
    choice = _choice()
    assert choice.choose(1) is numpy_reading
    assert choice.choose(COMPILED_RECORDS_MIN - 2) is numpy_reading
    assert choice.choose(1) is numba_reading


def test_records_that_are_still_to_come_count_but_are_not_remembered() -> None:
    choice = _choice()
    assert choice.choose(1, coming=COMPILED_RECORDS_MIN - 2) is numpy_reading
    assert choice.choose(1, coming=COMPILED_RECORDS_MIN - 3) is numpy_reading
    assert choice.choose(1, coming=COMPILED_RECORDS_MIN) is numba_reading


def test_one_of_them_can_be_forced() -> None:
    assert _choice("numba").choose(1) is numba_reading
    assert _choice("numpy").choose(COMPILED_RECORDS_MIN) is numpy_reading


def test_numpy_stays_where_compiled_kernels_cannot_be_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    choice = _choice(module="penstock.columns.missing")
    assert choice.choose(COMPILED_RECORDS_MIN) is numpy_reading
    assert choice.choose(COMPILED_RECORDS_MIN) is numpy_reading
    assert len(caplog.records) == 1
    with pytest.raises(ImportError):
        _choice("numba", "penstock.columns.missing").choose(1)


def test_numpy_serves_while_another_process_compiles(tmp_path: Path) -> None:
    choice = _choice()
    with (tmp_path / f"{_MODULE}-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert choice.choose(COMPILED_RECORDS_MIN) is numpy_reading
    assert choice.choose(1) is numba_reading


def test_a_place_for_locks_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert _choice().choose(COMPILED_RECORDS_MIN) is numba_reading


_DECODE = """
import sys
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.columns.decoding import Decoder
from penstock.columns.kernels import COMPILED_RECORDS_MIN, reading_choice
{before}
decoder = Decoder(topic="t", partition=0, columns=("value",), start=0, stop={stop})
batches = [*decoder.decode(memoryview(build_batch([Record(value=b"v")]))), *decoder.finish()]
assert batches[0].to_pylist() == [{{"value": b"v"}}]
loaded = "penstock.columns.numba_reading" in sys.modules
print("numba" in sys.modules, loaded, reading_choice().choose(1).__name__.split(".")[-1])
"""
_NO_PLACE = """
import numba.core.caching
numba.core.caching.CacheImpl._locator_classes = []
from numba.core.caching import CompileResultCacheImpl
CompileResultCacheImpl._locator_classes = []
"""


def _run(*, before: str = "", stop: str = "1", **environment: str) -> str:
    script = _DECODE.format(before=before, stop=stop)
    with tempfile.TemporaryDirectory() as place:
        found = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PENSTOCK_KERNELS": "", "TMPDIR": place, **environment},
            capture_output=True,
            text=True,
            # To compile all kernels again takes seconds, and many of them on a busy machine.
            timeout=110,
        )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_a_small_input_loads_neither_numba_nor_pandas() -> None:
    # Arrow would load pandas, which takes as long, to make an array of a numpy one.
    assert _run(before="sys.modules['pandas'] = None") == "False False numpy_reading"


def test_a_range_of_many_records_loads_it_at_once() -> None:
    assert _run(stop="COMPILED_RECORDS_MIN") == "True True numba_reading"


def test_the_environment_forces_one_of_them() -> None:
    assert _run(PENSTOCK_KERNELS="numba") == "True True numba_reading"
    forced = _run(stop="COMPILED_RECORDS_MIN", PENSTOCK_KERNELS="numpy")
    assert forced == "False False numpy_reading"


def test_without_numba_numpy_serves() -> None:
    found = _run(before="sys.modules['numba'] = None", stop="COMPILED_RECORDS_MIN")
    assert found.endswith("numpy_reading")


def test_without_a_place_for_compiled_code_numpy_serves() -> None:
    found = _run(before=_NO_PLACE, stop="COMPILED_RECORDS_MIN")
    assert found == "True False numpy_reading"


def test_where_numba_must_not_compile_numpy_serves() -> None:
    found = _run(stop="COMPILED_RECORDS_MIN", NUMBA_DISABLE_JIT="1")
    assert found == "True False numpy_reading"
