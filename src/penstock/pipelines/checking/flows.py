"""Checks a flow: may its dataset be written as a stream in that mode, and does the sink take it?"""

from collections.abc import Iterator
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from penstock.model.errors import Explained
from penstock.pipelines.building.refusing import REFUSALS
from penstock.pipelines.building.spark_problems import problem_of, sentence_of, word_of
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.sinks.building import build_sink
from penstock.pipelines.specification.model import Flow, LakeSink, OutputMode
from penstock.pipelines.specification.problems import Place, Problem, SpecificationRefused

CHECKER = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"
MODES = "org.apache.spark.sql.streaming.OutputMode"
TRIGGERS = "org.apache.spark.sql.streaming.Trigger"


def flow_problems(
    flow: Flow, frame: DataFrame | None, spark: SparkSession, *, is_doubtful: bool
) -> Iterator[Problem]:
    """All of them; without a frame, those that can be known without its columns.

    Of a doubtful one, which lacks a watermark for one, only the columns are believed.
    """
    yield from _interval_problems(flow, spark)
    yield from _setting_problems(flow, spark)
    yield from _mode_problems(flow)
    if frame is None:
        return
    if not is_doubtful:
        yield from _stream_problems(flow, frame, spark)
    yield from _sink_problems(flow, frame, spark)


def _interval_problems(flow: Flow, spark: SparkSession) -> Iterator[Problem]:
    if flow.interval is None:
        return
    try:
        _java(spark, TRIGGERS).ProcessingTime(flow.interval)
    except REFUSALS as error:
        yield Problem(place_of_word(flow.place, flow.interval), sentence_of(error))


def _setting_problems(flow: Flow, spark: SparkSession) -> Iterator[Problem]:
    """Spark refuses what can only be set when it starts, and values of the wrong kind."""
    trial = spark.newSession()
    for name, value in flow.settings.items():
        try:
            trial.conf.set(name, value)
        except REFUSALS as error:
            yield Problem(place_of_word(flow.place, name), sentence_of(error))


def _mode_problems(flow: Flow) -> Iterator[Problem]:
    if isinstance(flow.sink, LakeSink) and flow.mode is not OutputMode.APPEND:
        yield Problem(
            place_of_word(flow.place, flow.mode.value),
            f"The flow {flow.name} writes to a table, and tables are append-only: the mode "
            f"can't be {flow.mode.value}.",
        )


def _stream_problems(flow: Flow, frame: DataFrame, spark: SparkSession) -> Iterator[Problem]:
    if not frame.isStreaming:
        yield Problem(
            place_of_word(flow.place, flow.input),
            f"The flow {flow.name} reads {flow.input}, which is not a stream: none of its sources "
            "is one.",
        )
        return
    mode = getattr(_java(spark, MODES), flow.mode.value.capitalize())()
    try:
        _java(spark, CHECKER).checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except REFUSALS as error:
        said = f"The flow {flow.name} can't run: {_within_sentence(sentence_of(error))}"
        yield Problem(place_of_word(flow.place, flow.mode.value), said)


def _sink_problems(flow: Flow, frame: DataFrame, spark: SparkSession) -> Iterator[Problem]:
    try:
        build_sink(flow.sink, spark).prepare(frame.schema)
    except SpecificationRefused as refused:
        yield from refused.problems
    except (*REFUSALS, Explained) as error:
        problem = problem_of(error, flow.sink.place)
        if problem.place == flow.sink.place:
            # The word may stand beside the sink, or the sink's place may come after it.
            problem = replace(problem, place=_word_place(flow, error))
        yield problem


def _word_place(flow: Flow, error: Exception) -> Place:
    found = place_of_word(flow.place, word_of(error))
    return flow.sink.place if found == flow.place else found


def _within_sentence(text: str) -> str:
    return text[:1].lower() + text[1:]


def _java(spark: SparkSession, name: str):  # type: ignore[no-untyped-def]
    """A class of Spark's that Python has no name for."""
    assert spark._jvm is not None
    return getattr(spark._jvm, name)
