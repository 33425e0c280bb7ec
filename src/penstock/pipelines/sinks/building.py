"""Makes the sink that a specification asks for."""

from typing import TYPE_CHECKING

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.sinks.sink import Sink, SinkRefused
from penstock.pipelines.specification import model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_sink(sink: model.Sink, spark: "SparkSession | None" = None) -> Sink:
    """Nothing is opened or written before the sink is used."""
    match sink:
        case model.LakeSink():
            return _lake_sink(sink)
        case model.TopicSink():
            from penstock.pipelines.sinks.topic_sink import TopicWriter

            return TopicWriter(sink.options, sink.key)
        case model.ConsoleSink():
            from penstock.pipelines.sinks.console_sink import ConsoleWriter

            return ConsoleWriter(sink.rows)
        case model.FunctionSink():
            from penstock.pipelines.building.functions import load_function
            from penstock.pipelines.sinks.function_sink import FunctionWriter

            return FunctionWriter(load_function(sink.function))


def _lake_sink(sink: model.LakeSink) -> Sink:
    from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
    from penstock.pipelines.sinks.lake_sink import LakeWriter

    try:
        table = open_table(sink.format, sink.path, sink.options, evolves=sink.may_evolve)
    except LakeRefused as refused:
        raise SinkRefused(str(refused)) from refused
    return LakeWriter(
        table,
        sink.partition_by,
        keeps_partition_columns=keeps_partition_columns(sink.format),
    )
