"""The options of a read, in batch and in stream, with the meaning of Spark's Kafka source."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.wire.settings import WireSettings
from penstock.spark.options.bounds import (
    Bound,
    Earliest,
    Latest,
    Side,
    check_assigned,
    check_batch_end,
    check_batch_start,
    check_order,
    read_bound,
)
from penstock.spark.options.columns import read_columns
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import INT_MAX, Given
from penstock.spark.options.kafka_settings import READING, check_kafka_settings, wire_settings
from penstock.spark.options.misspelt import READ_OPTIONS, WRITE_OPTIONS, check_names
from penstock.spark.options.selection import Selection, read_selection
from penstock.spark.options.tracing import traced

_TRIGGER_DELAY_MAX_S = 15 * 60.0
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")
# Retries are bounded by time and not by number, and no consumer group is joined.
_IDLE = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Everything a query reads by; plain values, so that a reader can be pickled with it."""

    wire: WireSettings
    selection: Selection
    starting: Bound
    ending: Bound
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    # How long a batch below the minimum may be held back.
    trigger_delay_max_s: float
    partitions_min: int | None
    records_per_partition_max: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    # The consumer group that finished micro-batches are committed to.
    commit_group: str | None
    # How long the list of partitions may be used before it is requested again.
    partitions_ttl_s: float
    # Whether tasks send spans to an OpenTelemetry collector.
    is_traced: bool
    # What has no effect, each a sentence, to be logged once when the query is made.
    notes: tuple[str, ...]


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options checked and typed; raises OptionError with one sentence."""
    given = Given.of(options)
    check_names(given)
    without_effect = check_kafka_settings(given, READING)
    selection = read_selection(given)
    starting, ending = _bounds(given, selection, streaming)
    most, least = _trigger_limits(given)
    return ReadOptions(
        wire=wire_settings(given, READING),
        selection=selection,
        starting=starting,
        ending=ending,
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_max_s=given.seconds("maxTriggerDelay", _TRIGGER_DELAY_MAX_S),
        partitions_min=given.number("minPartitions", least=1, most=INT_MAX),
        records_per_partition_max=given.number("maxRecordsPerPartition", least=1),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        columns=read_columns(given),
        commit_group=given.text_filled("commitGroup"),
        partitions_ttl_s=_partitions_ttl_s(given),
        is_traced=traced(given),
        notes=_notes(given, without_effect, streaming),
    )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns alone, for anyone who must name them before it is known how they are read."""
    return read_columns(Given.of(options))


def _bounds(given: Given, selection: Selection, streaming: bool) -> tuple[Bound, Bound]:
    if streaming:
        _refuse_end_of_stream(given)
        starting = read_bound(given, Side.STARTING, Latest())
        check_assigned(starting, selection, Side.STARTING)
        return starting, Latest()
    starting = read_bound(given, Side.STARTING, Earliest())
    ending = read_bound(given, Side.ENDING, Latest())
    check_batch_start(starting)
    check_batch_end(ending)
    check_order(starting, ending)
    check_assigned(starting, selection, Side.STARTING)
    check_assigned(ending, selection, Side.ENDING)
    return starting, ending


def _refuse_end_of_stream(given: Given) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp"):
        if name in given:
            raise OptionError(f"The option {name} can't be set on a stream, which has no end.")


def _trigger_limits(given: Given) -> tuple[int | None, int | None]:
    most = given.number("maxOffsetsPerTrigger", least=1)
    least = given.number("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"The option minOffsetsPerTrigger ({least}) is higher than "
            f"maxOffsetsPerTrigger ({most})."
        )
    return most, least


def _partitions_ttl_s(given: Given) -> float:
    name = "partition.metadata.cache.ttl.ms"
    if given.text(name) == "-1":
        return 0.0
    return (given.number(name, least=1) or 0) / 1000


def _notes(given: Given, without_effect: list[str], streaming: bool) -> tuple[str, ...]:
    notes = [f"The setting kafka.{name} has no effect here." for name in without_effect]
    if not streaming:
        notes += [
            f"The option {name} has no effect in a batch query."
            for name in _STREAM_ONLY
            if name in given
        ]
    elif "endingTimestamp" in given:
        notes.append("The option endingTimestamp has no effect on a stream, which has no end.")
    idle = (*_IDLE, *(name for name in WRITE_OPTIONS if name not in READ_OPTIONS))
    notes += [f"The option {name} has no effect on a read." for name in idle if name in given]
    return tuple(notes)
