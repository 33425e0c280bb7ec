"""A pipeline as it was described, whether in YAML or in Python: plain values, without Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.pipelines.specification.problems import Place

Options = Mapping[str, str]
Row = Mapping[str, Any]

# Datasets that come into being beside one that has decoding or routing rules, by what is added to
# its name: `readings_undecodable`.
UNDECODABLE = "_undecodable"
REJECTED = "_rejected"


class ValueFormat(StrEnum):
    """How the bytes of a record are read (`penstock.spark.decode`)."""

    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class LakeFormat(StrEnum):
    """How a table of files says what belongs to it."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Action(StrEnum):
    """What happens to a row that breaks a rule; it is counted in each case."""

    KEEP = "keep"
    DROP = "drop"
    ROUTE = "route"
    FAIL = "fail"


class OutputMode(StrEnum):
    """Structured Streaming's."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that is given when the pipeline runs; `${name}` stands for it in the file."""

    name: str
    default: str | None = None
    environment: str | None = None
    description: str = ""
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Turns one column of bytes into columns with types.

    The fields of the decoded value become columns of the dataset, before the record's own columns
    named in `keep`. Text becomes one column, `into`.
    """

    format: ValueFormat
    column: str = "value"
    schema: str | None = None
    """DDL for JSON; for Avro and Protobuf a file, or Avro's own JSON text."""
    into: str = "text"
    keep: tuple[str, ...] = ("key", "topic", "partition", "offset", "timestamp")
    options: Options = field(default_factory=dict)
    """What else `penstock.spark.decode` takes: message, framing, encoding, timestampFormat ..."""
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How long late rows are waited for, by the time in a column."""

    column: str
    delay: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition in SQL that each row should meet; null counts as broken."""

    name: str
    condition: str
    action: Action
    place: Place
    """Where the first character of the condition stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReference:
    """A Python function: from a file beside the specification, or at hand."""

    name: str
    file: str | None = None
    """Absolute."""
    function: Callable[..., Any] | None = None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Records of topics; `options` are those of `.format("penstock")`, bootstrap included."""

    name: str
    options: Options
    decoding: Decoding | None = None
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files that Spark reads: a stream of new ones, or a table that is read once per start."""

    name: str
    path: str
    format: str
    schema: str
    """DDL; it has to be given, so that a pipeline can be checked without data."""
    schema_place: Place | None = None
    """Where the first character of the schema stands."""
    is_stream: bool = True
    options: Options = field(default_factory=dict)
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table of files: a stream of what is appended, or what it holds at the start."""

    name: str
    format: LakeFormat
    path: str
    schema: str | None = None
    """DDL; needed only to check the pipeline where the table does not exist yet."""
    schema_place: Place | None = None
    is_stream: bool = False
    options: Options = field(default_factory=dict)
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource:
    """What `penstock archive` kept of a topic, with a topic's columns."""

    name: str
    path: str
    is_stream: bool = True
    options: Options = field(default_factory=dict)
    decoding: Decoding | None = None
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


Source = TopicSource | FileSource | TableSource | ArchiveSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over other datasets; they are its tables."""

    name: str
    sql: str
    sql_place: Place
    """Where the first character of the query stands."""
    inputs: tuple[str, ...]
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStep:
    """A Python function from DataFrames to a DataFrame; its parameters' names are its inputs."""

    name: str
    function: FunctionReference
    inputs: tuple[str, ...]
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateStep:
    """Each value of some columns once; within the watermark's delay when that is asked for."""

    name: str
    input: str
    by: tuple[str, ...]
    is_within_watermark: bool = True
    watermark: Watermark | None = None
    rules: tuple[Rule, ...] = ()
    place: Place

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)


Step = SqlStep | FunctionStep | DeduplicateStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Records to a topic; `options` are those of `.format("penstock")`.

    Without a column `value` of text or bytes in the rows, the value is the row as JSON. `key` names
    the column that becomes the key; without it a column of that name does.
    """

    options: Options
    key: str | None = None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """Rows to a table of Parquet files, each micro-batch exactly once."""

    format: LakeFormat
    path: str
    partition_by: tuple[str, ...] = ()
    """Columns; for Iceberg also `day(column)` and its like."""
    may_evolve: bool = False
    """Whether the table gains columns and wider types of the rows, which are refused otherwise."""
    options: Options = field(default_factory=dict)
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    """Rows to the terminal."""

    rows: int = 20
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSink:
    """A Python function that takes each micro-batch: `(frame)` or `(frame, batch_id)`."""

    function: FunctionReference
    place: Place


Sink = TopicSink | LakeSink | ConsoleSink | FunctionSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One running query: a dataset into a sink, with a checkpoint of its own."""

    name: str
    input: str
    sink: Sink
    interval: str | None = None
    """Between two micro-batches; None: the next begins when the last has ended."""
    mode: OutputMode = OutputMode.APPEND
    settings: Options = field(default_factory=dict)
    """Of Spark, for this flow alone."""
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test: rows of sources, and the rows that are expected of datasets."""

    name: str
    given: Mapping[str, tuple[tuple[Row, ...], ...]]
    """By source: micro-batches of rows."""
    expected: Mapping[str, tuple[Row, ...]]
    """By dataset, in any order."""
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What becomes of a flow whose query has died of something that may pass."""

    attempts: int = 10
    """In a row; 0: the first failure ends the run."""
    pause_s: float = 1.0
    """Before the first one; it doubles each time."""
    pause_s_max: float = 120.0

    def pause_before(self, attempt: int) -> float:
        """Attempts count from 1."""
        # Long before it is too large for a float, the pause has come to its bound.
        doublings = min(attempt - 1, 64)
        return float(min(self.pause_s * 2**doublings, self.pause_s_max))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Everything that a specification says, with parameters filled in and references checked."""

    name: str
    description: str = ""
    file: str
    """Absolute."""
    storage: str
    """The folder for checkpoints and progress, absolute."""
    parameters: Mapping[str, str]
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    """In an order in which each comes after its inputs."""
    flows: Mapping[str, Flow]
    """In an order in which one that reads a topic comes after those that write it."""
    cases: tuple[Case, ...] = ()
    settings: Options = field(default_factory=dict)
    """Of Spark, for the session."""
    restart: Restart = Restart()
    place: Place
