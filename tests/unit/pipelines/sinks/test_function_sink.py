"""Proves which functions a flow may end in, and what they get."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.pipelines.sinks.function_sink import FunctionWriter
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written

EPOCH = Epoch(query="q", batch=7, pipeline="iot", flow="alerts")
FRAME: Any = object()
SCHEMA: Any = None


class Keeper:
    def take(self, frame: Any, batch_id: int) -> None:
        self.taken = (frame, batch_id)


def test_functions_get_the_frame_and_the_batch_if_they_want_it() -> None:
    calls: list[tuple[Any, ...]] = []
    functions: list[Callable[..., object]] = [
        lambda frame: calls.append((frame,)),
        lambda frame, batch_id: calls.append((frame, batch_id)),
        lambda frame, verbose=False: calls.append((frame, verbose)),
        lambda frame, batch=None: calls.append((frame, batch)),
        lambda *given: calls.append(given),
        functools.partial(lambda prefix, frame: calls.append((prefix, frame)), "prefix"),
    ]
    for function in functions:
        sink = FunctionWriter(function)
        sink.prepare(SCHEMA)
        assert sink.write(FRAME, EPOCH) == Written()
    expected = [(FRAME,), (FRAME, 7), (FRAME, False), (FRAME, 7), (FRAME, 7), ("prefix", FRAME)]
    assert calls == expected


def test_methods_and_builtins_are_functions_too() -> None:
    keeper = Keeper()
    FunctionWriter(keeper.take).write(FRAME, EPOCH)
    assert keeper.taken == (FRAME, 7)
    FunctionWriter(print).prepare(SCHEMA)


@pytest.mark.parametrize(
    "function", [lambda: None, lambda a, b, c: None, lambda frame, *, table: None]
)
def test_other_functions_are_refused_by_name(function: Callable[..., object]) -> None:
    function.__name__ = "store"
    with pytest.raises(SinkRefused) as refused:
        FunctionWriter(function).prepare(SCHEMA)
    text = str(refused.value)
    assert text.startswith("The function store must take (frame) or (frame, batch_id), not (")
    assert text.endswith(").")


def test_what_a_function_raises_is_the_users_to_see() -> None:
    def store(frame: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        FunctionWriter(store).write(FRAME, EPOCH)
