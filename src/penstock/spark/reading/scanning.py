"""What an executor does: fetch raw batches of one range and hand them to Spark as Arrow."""

import logging
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import OffsetOutOfRange, UnknownTopic
from penstock.spark.options.reading import ReadOptions
from penstock.spark.reading.data_loss import report_loss
from penstock.spark.reading.topic_range import TopicRange

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.tracing import TaskTrace

logger = logging.getLogger(__name__)

# Told from where to where records are gone, where the options allow that they are.
Lost = Callable[[int, int], None]


def _nobody(start: int, stop: int) -> None:
    """A query only logs what it lost."""


def scan(
    wanted: TopicRange, options: ReadOptions, lost: Lost = _nobody
) -> "Iterator[pa.RecordBatch]":
    """All records of a range, and only those, in the order of their offsets."""
    if not options.is_traced:
        yield from _scan(wanted, options, lost, None)
        return
    # Only where it is wanted: it costs an import.
    from pyspark import TaskContext

    from penstock.spark.tracing import TaskTrace
    from penstock.spark.writing.epoch import task_attempt

    trace = TaskTrace.begin(task_attempt(TaskContext.get()))
    fault = "Spark did not read all of it"
    try:
        yield from _scan(wanted, options, lost, trace)
        fault = ""
    except Exception as error:
        fault = str(error)
        raise
    finally:
        trace.end_read(wanted.topic, wanted.partition, fault)


def _scan(
    wanted: TopicRange, options: ReadOptions, lost: Lost, trace: "TaskTrace | None"
) -> "Iterator[pa.RecordBatch]":
    # The range was planned by a driver that has found the brokers.
    with WireCluster(options.wire.once_reached()) as cluster:
        position: int | None = wanted.start
        while position is not None:
            position = yield from _scan_from(position, wanted, cluster, options, lost, trace)


def _scan_from(
    position: int,
    wanted: TopicRange,
    cluster: WireCluster,
    options: ReadOptions,
    lost: Lost,
    trace: "TaskTrace | None",
) -> "Generator[pa.RecordBatch, None, int | None]":
    """Returns where to go on after a loss that the options allow, or None at the end."""
    # Planners import this module too, and they need no Arrow.
    from penstock.columns.decoding import Decoder

    # A batch may still hold records from before `position`, and the decoder cuts them away.
    decoder = Decoder(
        topic=wanted.topic,
        partition=wanted.partition,
        columns=options.columns,
        start=position,
        stop=wanted.stop,
    )
    next_position: int | None = None
    try:
        with cluster.fetcher(wanted.place, position, wanted.stop) as fetcher:
            for fetched in fetcher:
                if trace is not None:
                    trace.look_into(fetched.data, wanted.stop)
                yield from decoder.decode(fetched.data, fetched.aborted)
    except OffsetOutOfRange as error:
        next_position = _after_loss(error, wanted, fail=options.fail_on_data_loss)
        lost(error.offset, wanted.stop if next_position is None else next_position)
    except UnknownTopic:
        if options.fail_on_data_loss:
            raise
        logger.warning("%s is gone; the query continues without it.", wanted.place)
        lost(decoder.next_offset, wanted.stop)
    yield from decoder.finish()
    return next_position


def _after_loss(lost: OffsetOutOfRange, wanted: TopicRange, *, fail: bool) -> int | None:
    if lost.log_end < lost.offset:
        report_loss(
            f"Partition {wanted.partition} of topic {wanted.topic} ends at offset {lost.log_end},"
            f" before offset {lost.offset} that the query wants: was the topic deleted and created"
            " again",
            fail=fail,
        )
        return None
    report_loss(
        f"The records of partition {wanted.partition} of topic {wanted.topic} from offset"
        f" {lost.offset} up to {min(lost.log_start, wanted.stop)} were deleted before they were"
        " read",
        fail=fail,
    )
    return lost.log_start if lost.log_start < wanted.stop else None
