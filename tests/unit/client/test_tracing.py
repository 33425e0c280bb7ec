"""A program is traced if it has set up OpenTelemetry, and only then."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from penstock.client.tracing import tracing_of_program

PROGRAM = """
import sys
from penstock import Consumer, Producer, Queue
Producer("127.0.0.1:1"), Consumer(bootstrap="127.0.0.1:1"), Queue("t", group="g")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    command = [sys.executable, "-c", PROGRAM]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


def test_a_program_that_has_set_it_up_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert tracing_of_program() is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    assert tracing_of_program() is not None
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "requests, penstock")
    assert tracing_of_program() is None
