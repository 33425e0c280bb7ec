"""One test case on Spark: given rows through real streaming queries, to the rows that come out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.streaming.query import StreamingQuery

from penstock.columns.layout import COLUMNS, spark_schema
from penstock.pipelines.building.blank_reader import BlankReader, columns_of
from penstock.pipelines.building.datasets import Datasets
from penstock.pipelines.building.spark_problems import problem_of
from penstock.pipelines.running.failures import sentence_of
from penstock.pipelines.specification.lineage import owner_of, reached_from
from penstock.pipelines.specification.model import (
    UNDECODABLE,
    ArchiveSource,
    Case,
    OutputMode,
    Pipeline,
    Source,
    TopicSource,
)
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.trying.differences import Comparison, compare
from penstock.pipelines.trying.given_reader import GivenReader, without_decoding
from penstock.pipelines.trying.given_rows import GivenRows, given_rows
from penstock.pipelines.trying.typed_values import NotOfType, typed_row
from penstock.spark.sessions import RECOMMENDED

QUERY_TIMEOUT_S = 300
# A time without an offset means the same on every machine, and a handful of rows needs no more than
# one task for each stage.
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
ALWAYS = {"spark.sql.shuffle.partitions": "1"}


class TrialFailed(Exception):
    """A test could not be run to its end; the text is one sentence."""


class Frames(Protocol):
    """What a trial needs of `Datasets`."""

    def frame(self, name: str) -> DataFrame: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A streaming query that writes to a table in memory."""

    query: StreamingQuery
    table: str


def session_for(pipeline: Pipeline, running: SparkSession) -> SparkSession:
    """A session of its own in the same JVM, with the pipeline's settings as far as they fit there.

    Others belong to the JVM, and were given when it started.
    """
    session = running.newSession()
    for name, value in {**RECOMMENDED, **SETTINGS, **pipeline.settings, **ALWAYS}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def compared(
    pipeline: Pipeline, case: Case, session: SparkSession, folder: Path
) -> tuple[Comparison, ...]:
    """Run what the case expects something of, all at once, and compare each dataset."""
    for dataset in case.expected:
        if owner_of(pipeline, dataset) is None:
            raise SpecificationRefused.at(case.place, f"There is no dataset {dataset!r}.")
    rows = _all_given(pipeline, case, session)
    tried = without_decoding(pipeline, rows)
    datasets: Frames = Datasets(tried, session, GivenReader(session, rows, folder / "given"))
    frames = {name: datasets.frame(name) for name in case.expected}
    # Before anything runs, because a wrong column here needs no run to be seen.
    expected = {name: _typed_rows(case, name, frame.schema) for name, frame in frames.items()}
    found = _results(pipeline, frames, folder / "checkpoints")
    return tuple(
        compare(name, expected[name], found[name], frame.schema) for name, frame in frames.items()
    )


def _all_given(pipeline: Pipeline, case: Case, session: SparkSession) -> dict[str, GivenRows]:
    """The rows of each source that matters here."""
    reached = reached_from(pipeline, [*case.expected, *case.given])
    reader = BlankReader(session)
    blank: Frames = Datasets(pipeline, session, reader)
    result = {}
    for name, source in pipeline.sources.items():
        if name not in reached:
            continue
        raw = _raw_schema(source, reader)
        result[name] = given_rows(case, source, raw, blank.frame(name).schema)
        beside = name + UNDECODABLE
        if beside in reached and result[name].is_decoded:
            schema = blank.frame(beside).schema
            result[beside] = GivenRows(schema=schema, is_decoded=True, batches=())
    return result


def _raw_schema(source: Source, reader: BlankReader) -> spark.StructType:
    """The columns before decoding; a record has all of its own, whichever are read later."""
    if isinstance(source, TopicSource | ArchiveSource):
        return columns_of(spark_schema(COLUMNS))
    return reader.read(source).schema


def _typed_rows(case: Case, dataset: str, schema: spark.StructType) -> list[dict[str, Any]]:
    expected = []
    for number, row in enumerate(case.expected[dataset], 1):
        try:
            expected.append(typed_row(row, schema))
        except NotOfType as problem:
            where = f"The test {case.name!r} expects in {dataset}, row {number}"
            raise SpecificationRefused.at(case.place, f"{where}: {problem}") from None
    return expected


def _results(
    pipeline: Pipeline, frames: Mapping[str, DataFrame], checkpoints: Path
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each dataset; those that are streams run side by side, as in a run."""
    started: dict[str, Started] = {}
    try:
        for name, frame in frames.items():
            if frame.isStreaming:
                started[name] = _started(pipeline, name, frame, checkpoints / name)
        for name, one in started.items():
            _wait(name, one.query)
        return {name: _rows(name, frame, started.get(name)) for name, frame in frames.items()}
    finally:
        _stop(started.values())


def modes_of(pipeline: Pipeline, dataset: str) -> list[OutputMode]:
    """The output modes to try, in this order.

    The mode of the flow that takes the dataset, so that a test sees what the sink would. Where no
    flow takes it, append, and then the modes of flows further down, whose queries it is a part of.
    """
    flows = pipeline.flows.values()
    direct = [flow.mode for flow in flows if flow.input == dataset]
    if direct:
        return direct[:1]
    further = [flow.mode for flow in flows if dataset in reached_from(pipeline, [flow.input])]
    return list(dict.fromkeys([OutputMode.APPEND, *further]))


def _started(pipeline: Pipeline, dataset: str, frame: DataFrame, checkpoint: Path) -> Started:
    refusals = []
    for mode in modes_of(pipeline, dataset):
        try:
            return _start(frame, mode, checkpoint)
        except AnalysisException as error:
            refusals.append(error)
    owner = owner_of(pipeline, dataset)
    assert owner is not None, "it was checked at the beginning"
    place = {**pipeline.sources, **pipeline.steps}[owner].place
    raise SpecificationRefused([problem_of(refusals[0], place)]) from refusals[0]


def _start(frame: DataFrame, mode: OutputMode, checkpoint: Path) -> Started:
    table = f"penstock_test_{uuid4().hex}"
    writer = frame.writeStream.format("memory").queryName(table).outputMode(mode.value)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return Started(query=writer.start(), table=table)


def _wait(dataset: str, query: StreamingQuery) -> None:
    try:
        has_ended = query.awaitTermination(QUERY_TIMEOUT_S)
    except StreamingQueryException as error:
        raise TrialFailed(f"{dataset} failed: {sentence_of(error)}") from error
    if not has_ended:
        raise TrialFailed(f"{dataset} had not ended after {QUERY_TIMEOUT_S} seconds.")


def _rows(dataset: str, frame: DataFrame, started: Started | None) -> list[dict[str, Any]]:
    if started is not None:
        frame = frame.sparkSession.table(started.table)
    try:
        # Not collect(), which turns times into those of this machine's time zone.
        rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    except PythonException as error:
        raise TrialFailed(f"{dataset} failed: {sentence_of(error)}") from error
    return rows


def _stop(started: Iterable[Started]) -> None:
    for one in started:
        one.query.stop()
