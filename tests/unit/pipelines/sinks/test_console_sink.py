"""Proves how rows look on a terminal."""

import os
import sys
from typing import Any

import pytest

from penstock.pipelines.sinks.console_sink import ConsoleWriter, batch_text, table_lines
from penstock.pipelines.sinks.sink import Epoch, SinkRefused

EPOCH = Epoch(query="q", batch=7, pipeline="iot", flow="alerts")


def test_a_batch_has_a_heading_a_table_and_what_is_left_out() -> None:
    rows = [("a", "20.5"), ("sensor-b", None)]
    assert batch_text(EPOCH, ["sensor", "temperature"], rows, 1202).splitlines() == [
        "alerts, batch 7: 1,202 rows",
        "sensor    temperature",
        "--------  -----------",
        "a         20.5",
        "sensor-b  null",
        "... and 1200 more",
    ]
    assert batch_text(EPOCH, ["a"], [("x",)], 1).splitlines()[0] == "alerts, batch 7: 1 row"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (b"key", "key"),
        (bytearray(b"\xff\x00"), "0xff00"),
        ("x" * 50, "x" * 37 + "..."),
        # Rows come from outside: they must not be able to steer a terminal.
        ("a\x1b[2Jb\n", "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"),
        ("größe", "größe"),
    ],
)
def test_cells_are_short_and_printable(value: Any, cell: str) -> None:
    assert table_lines(["c"], [[value]])[2] == cell


def test_whoever_reads_a_pipe_sees_a_batch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb", buffering=0) as pipe, open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        ConsoleWriter()._show("a batch")
        assert pipe.read() == b"a batch\n"


def test_at_least_one_row_is_shown() -> None:
    ConsoleWriter(1).prepare(None)  # type: ignore[arg-type]
    with pytest.raises(SinkRefused, match=r"The console must show at least one row, not 0\."):
        ConsoleWriter(0).prepare(None)  # type: ignore[arg-type]
