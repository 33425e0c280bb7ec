"""Dead letters: the rows that could not be decoded, as records for a topic of their own."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark
from pyspark.sql.streaming.query import StreamingQuery

from penstock.columns.values.refusals import DecodeRefused
from penstock.spark.values.frames import quoted
from penstock.spark.writing.layout import HEADERS

SOURCE_FORMAT = "penstock"
CHECKPOINT_SETTING = "spark.sql.streaming.checkpointLocation"
REASON_HEADER = "penstock.reason"
# The columns of a topic's DataFrame that say where a record came from, as text.
ORIGINS: dict[str, str] = {
    "penstock.topic": "topic",
    "penstock.partition": "partition",
    "penstock.offset": "offset",
    "penstock.timestamp": "timestamp",
}


def dead_letters(
    df: DataFrame,
    topic: str | None = None,
    *,
    error: str = "decode_error",
    key: str = "key",
    value: str = "value",
) -> DataFrame:
    """The rows of a decoded DataFrame that have an error, as records for `.format("penstock")`.

    The result has the columns `key` (when `df` has one), `value`, `headers`, and `topic` when a
    topic is given. Key and value are the original bytes. The original headers are kept, in their
    order, when `df` has them (option includeHeaders of the source); after them come, as text,
    penstock.topic, penstock.partition, penstock.offset, penstock.timestamp (milliseconds since
    1970) as far as `df` has these columns, and penstock.reason, the sentence of the error column.

    Decode into other columns than `value`, so that the original is still there.
    """
    _require(df, error, (spark.StringType,))
    _require(df, value, (spark.BinaryType, spark.StringType))
    failed = df.where(quoted(error).isNotNull())
    columns = [quoted(value).alias("value"), _headers(df, error).alias("headers")]
    if _has(df, key):
        _require(df, key, (spark.BinaryType, spark.StringType))
        columns.insert(0, quoted(key).alias("key"))
    if topic is not None:
        columns.append(sf.lit(_named(topic)).alias("topic"))
    return failed.select(*columns)


def write_dead_letters(
    df: DataFrame,
    *,
    topic: str,
    bootstrap: str,
    checkpoint: str | None = None,
    error: str = "decode_error",
    key: str = "key",
    value: str = "value",
    trigger: Mapping[str, object] | None = None,
    query_name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery | None:
    """Send the rows of a decoded DataFrame that have an error to a topic (see `dead_letters`).

    A batch DataFrame is written before this returns. For a streaming one a query is started and
    returned; it needs a `checkpoint` folder of its own, and `trigger` as DataStreamWriter.trigger
    takes it ({"availableNow": True}). It reads the source beside the query that handles the good
    rows; to read once for both, call this inside foreachBatch. `options` go to the sink as they
    are.
    """
    records = dead_letters(df, error=error, key=key, value=value)
    settings = {
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap,
        "topic": _named(topic),
    }
    if not df.isStreaming:
        if checkpoint is not None or trigger is not None or query_name is not None:
            raise DecodeRefused(
                "checkpoint, trigger and query_name are for streams, and this DataFrame is not one."
            )
        records.write.format(SOURCE_FORMAT).mode("append").options(**settings).save()
        return None
    if checkpoint is not None:
        settings["checkpointLocation"] = checkpoint
    elif not df.sparkSession.conf.get(CHECKPOINT_SETTING, ""):
        raise DecodeRefused("A stream of dead letters needs checkpoint=, its own folder.")
    writer = records.writeStream.format(SOURCE_FORMAT).options(**settings)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.start()


def _headers(df: DataFrame, error: str) -> Column:
    own = [_header(name, _origin(column)) for name, column in ORIGINS.items() if _has(df, column)]
    added = sf.array(*own, _header(REASON_HEADER, quoted(error))).cast(HEADERS)
    if not _has(df, "headers"):
        return added
    found, wanted = df.schema["headers"].dataType.simpleString(), HEADERS.simpleString()
    if found != wanted:
        raise DecodeRefused(f"The column 'headers' is {found}, not {wanted}.")
    none = sf.array().cast(HEADERS)
    return sf.concat(sf.coalesce(sf.col("headers"), none), added)


def _origin(column: str) -> Column:
    return sf.unix_millis(column) if column == "timestamp" else sf.col(column)


def _header(name: str, text: Column) -> Column:
    return sf.struct(sf.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))


def _has(df: DataFrame, column: str) -> bool:
    return column in df.columns


def _require(df: DataFrame, column: str, kinds: tuple[type[spark.DataType], ...]) -> None:
    if not _has(df, column):
        raise DecodeRefused(
            f"The DataFrame has no column {column!r}; it has: {', '.join(df.columns)}."
        )
    found = df.schema[column].dataType
    if not isinstance(found, kinds):
        wanted = " or ".join(kind().simpleString() for kind in kinds)
        raise DecodeRefused(f"The column {column!r} is {found.simpleString()}, not {wanted}.")


def _named(topic: str) -> str:
    if not topic:
        raise DecodeRefused("The topic for dead letters has no name.")
    return topic
