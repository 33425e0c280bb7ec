"""Spans of tasks: which trace they are of, what they are linked to, and what records get."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.model.trace_context import TraceContext, headers_of
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.spark import tracing
from penstock.spark.options import tracing as tracing_option
from penstock.spark.options.errors import OptionError
from penstock.spark.options.writing import write_options
from penstock.spark.tracing import TaskTrace, context_of_task, with_traceparent
from penstock.spark.writing.epoch import Epoch, TaskAttempt
from penstock.spark.writing.slab import HEADERS_TYPE

CONTEXT = TraceContext(7, 8, is_sampled=True)
OWN = [("traceparent", str(CONTEXT).encode())]
OTHER = [("traceparent", b"00-other")]


def attempt(batch_id: int, partition: int = 0) -> TaskAttempt:
    epoch = Epoch(query_id="q", batch_id=batch_id)
    return TaskAttempt(epoch=epoch, partition=partition, attempt=partition)


def test_all_tasks_of_a_micro_batch_are_of_one_trace() -> None:
    first, second = context_of_task(attempt(1, 0)), context_of_task(attempt(1, 1))
    assert first.trace_id == second.trace_id != context_of_task(attempt(2)).trace_id
    assert first.span_id != second.span_id
    alone = TaskAttempt(epoch=None, partition=0, attempt=0)
    assert context_of_task(alone).trace_id != context_of_task(alone).trace_id


def test_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINKS_MAX", 2)
    trace = TaskTrace.begin(attempt(0))
    contexts = [TraceContext(number, 1, is_sampled=True) for number in (1, 1, 2, 3)]
    records = [
        Record(offset=at, timestamp_ms=1, headers=headers_of(each))
        for at, each in enumerate(contexts)
    ]
    trace.look_into(memoryview(build_batch(records)), stop=10)
    assert list(trace._links) == [contexts[0], contexts[2]]


def test_what_is_looked_into_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LOOKED_BYTES_MAX", 1)
    trace = TaskTrace.begin(attempt(0))
    for number in (1, 2):
        headers = headers_of(TraceContext(number, 1, is_sampled=True))
        trace.look_into(build_batch([Record(timestamp_ms=1, headers=headers)]), stop=10)
    assert [each.trace_id for each in trace._links] == [1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [OWN, OWN]),
        ([[], None], [OWN, OWN]),
        ([[("a", b"1")], OTHER], [[("a", b"1"), *OWN], OTHER]),
        (
            [[("a", b"1"), *OTHER, ("b", None)], [("c", b"2")], [], [*OTHER]],
            [[("a", b"1"), *OTHER, ("b", None)], [("c", b"2"), *OWN], OWN, OTHER],
        ),
    ],
)
def test_rows_without_a_trace_get_one(given: Any, expected: Any) -> None:
    headers = None
    if given is not None:
        # A slice, as Spark may give one.
        padded = [OTHER, *given]
        headers = pa.array(
            [each and [{"key": key, "value": value} for key, value in each] for each in padded],
            HEADERS_TYPE,
        )[1:]
    made = with_traceparent(headers, len(expected), CONTEXT)
    made.validate(full=True)
    assert made.type == HEADERS_TYPE
    assert [[(each["key"], each["value"]) for each in row] for row in made.to_pylist()] == expected


def test_the_option_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "tracing": "true"}
    assert write_options(given, streaming=False).is_traced
    assert not write_options({**given, "tracing": "false"}, streaming=False).is_traced
    monkeypatch.setattr(tracing_option, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'penstock-mq\[otel\]'"):
        write_options(given, streaming=False)
