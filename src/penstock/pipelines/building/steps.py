"""Steps to frames: SQL over other datasets, Python functions, deduplication."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.building.functions import load_function, problem_in_python
from penstock.pipelines.building.refusing import refusing
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.specification.model import DeduplicateStep, FunctionStep, SqlStep, Step
from penstock.pipelines.specification.problems import Problem, SpecificationRefused

Frames = Mapping[str, DataFrame]


def step_frame(
    step: Step, inputs: Frames, spark: SparkSession, parameters: Mapping[str, str]
) -> DataFrame:
    """What a step makes of its inputs, before its own watermark and rules."""
    match step:
        case SqlStep():
            return _sql(step, inputs, spark)
        case FunctionStep():
            return _called(step, inputs, spark, parameters)
        case DeduplicateStep():
            return _deduplicated(step, inputs[step.input])


def _sql(step: SqlStep, inputs: Frames, spark: SparkSession) -> DataFrame:
    with refusing(step.place, step.sql_place), _views(inputs):
        _require_query(step.sql, spark)
        return spark.sql(step.sql)


def _require_query(sql: str, spark: SparkSession) -> None:
    """Refuses what is not a query: `spark.sql` would carry out a DROP or an INSERT on the spot."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    parser.parseQuery(sql)


@contextmanager
def _views(inputs: Frames) -> Iterator[None]:
    """The inputs as tables, only while the query is analysed: nothing is left in the session."""
    for name, frame in inputs.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name, frame in inputs.items():
            frame.sparkSession.catalog.dropTempView(name)


def _called(
    step: FunctionStep, inputs: Frames, spark: SparkSession, parameters: Mapping[str, str]
) -> DataFrame:
    function = load_function(step.function)
    reserved = {"spark": spark, "parameters": dict(parameters)}
    taken = inspect.signature(function).parameters
    extra = {name: value for name, value in reserved.items() if name in taken}
    folder = Path(step.function.file or step.function.place.file).parent
    try:
        made = function(**inputs, **extra)
        if isinstance(made, DataFrame):
            # Spark analyses some of what a function asks for only now.
            _ = made.schema
    except Exception as error:
        problem = problem_in_python(error, folder, step.function.place)
        raise SpecificationRefused([problem]) from error
    if not isinstance(made, DataFrame):
        said = f"The function {step.function.name} must return a DataFrame, not {_kind(made)}."
        raise SpecificationRefused.at(step.function.place, said)
    return made


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _deduplicated(step: DeduplicateStep, frame: DataFrame) -> DataFrame:
    names = {name.lower() for name in frame.columns}
    missing = [column for column in step.by if column.lower() not in names]
    if missing:
        known = ", ".join(frame.columns)
        raise SpecificationRefused(
            Problem(
                place_of_word(step.place, column),
                f"The dataset {step.input} has no column {column}; there are: {known}.",
            )
            for column in missing
        )
    with refusing(step.place):
        if step.is_within_watermark and frame.isStreaming:
            return frame.dropDuplicatesWithinWatermark(list(step.by))
        return frame.dropDuplicates(list(step.by))
