"""Streams in the output mode `update` into a topic: each row that has changed is a record.

Spark refuses this mode for every sink written in Python, before it asks the sink. A function that
takes each micro-batch may have any mode, and inside of it the batch is written like any other.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.plan import write_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "checkpointLocation"


def write_updates(
    df: "DataFrame",
    *,
    bootstrap: str,
    topic: str | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, object] | None = None,
    query_name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> "StreamingQuery":
    """Start a query that appends each row which a micro-batch has changed to a topic.

    The columns are those of `.format("penstock")`, and so are the `options`. Give rows the key of
    their group: the last record of a key is then its last state, which a compacted topic keeps.
    `trigger` is as DataStreamWriter.trigger takes it ({"availableNow": True}). After a failure the
    rows of a micro-batch may come twice.
    """
    if not df.isStreaming:
        raise InputError("write_updates takes a stream, and this DataFrame is not one.")
    settings = {**(options or {}), "kafka.bootstrap.servers": bootstrap}
    if topic is not None:
        settings["topic"] = topic
    # Refused here, and not in a task of the first micro-batch.
    write_plan(settings, df.schema, streaming=True)

    def append(batch: "DataFrame", batch_id: int) -> None:
        batch.write.format("penstock").mode("append").options(**settings).save()

    writer = df.writeStream.outputMode("update").foreachBatch(append)
    if checkpoint is not None:
        writer = writer.option(CHECKPOINT, checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.start()
