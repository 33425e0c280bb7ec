"""Watermarks: how long a dataset's late rows are waited for."""

from pyspark.sql import DataFrame

from penstock.pipelines.building.refusing import REFUSALS
from penstock.pipelines.building.spark_problems import problem_of
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.specification.model import Watermark
from penstock.pipelines.specification.problems import Problem


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    # On rows that are all there already, nothing is late.
    if watermark is None or not frame.isStreaming:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)


def watermark_problems(frame: DataFrame, watermark: Watermark | None) -> list[Problem]:
    if watermark is None:
        return []
    names = {name.lower(): name for name in frame.columns}
    if watermark.column.lower() not in names and "." not in watermark.column:
        said = f"There is no column {watermark.column}; there are: {', '.join(frame.columns)}."
        return [Problem(place_of_word(watermark.place, watermark.column), said)]
    try:
        # Spark checks the rest only when it plans, which asking for the schema makes it do.
        _ = frame.withWatermark(watermark.column, watermark.delay).schema
    except REFUSALS as error:
        return [problem_of(error, watermark.place)]
    return []
