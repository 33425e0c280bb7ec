"""Questions about topics in SQL, answered by DuckDB while it reads from the broker: no Spark.

Each topic that a query names is a table with the columns of the Spark source. Values are decoded,
so `value.temperature` is a field of a JSON, Avro or Protobuf value. The fields of JSON are found by
a look at the records, unless a schema names them. A JSON value lacks a field, or has one of another
type: then the field is NULL, as with Spark's `from_json`. What can't be decoded at all is NULL, and
the column `decode_error` says why.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.client.connection import bootstrap_or_default
from penstock.client.errors import ClientError
from penstock.client.positions import Bound
from penstock.client.tables import TopicTable, plan
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.settings import WireSettings
from penstock.columns.layout import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

    from penstock.columns.values.results import ColumnDecoder

VALUE_FORMATS = ("auto", "json", "text", "bytes", "avro", "protobuf")
ERROR_COLUMN = "decode_error"
# The fields of JSON values are those of all records of a range, if it has at most this many; of a
# longer one, those of this many records from the start and the end of each partition.
LOOKED_AT_MAX = 200_000
# These show what a topic holds: JSON, other text, or bytes.
SAMPLE_MAX = 1_000
_NOT_JSON = "The value is not valid JSON."
_UNKNOWN_COLUMN = re.compile(r'Referenced column "([^"]+)" not found')


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How values are decoded."""

    format: str = "auto"
    # Of JSON: fields and types as in SQL ("id BIGINT, tags VARCHAR[]"). Of Avro: the schema or its
    # file. Of Protobuf: a generated class, or the file of a descriptor set together with `message`.
    schema: object = None
    message: str | None = None
    # "confluent": the values begin as the serialisers of a schema registry write them.
    framing: str | None = None
    # The address of a schema registry: the values begin with ids of its schemas. They are read as
    # of the newest schema of the subject, by default TOPIC-value, or by `schema`.
    registry: str | None = None
    subject: str | None = None


DETECTED = Values()


def sql(
    query: str,
    start: Bound = None,
    end: Bound = None,
    *,
    values: Values = DETECTED,
    bootstrap: str | None = None,
) -> "pa.Table":
    """The answer to a query over topics, as an Arrow table.

    `start` and `end` bound what is read of each topic, as in `read_arrow`.
    """
    import pyarrow as pa

    with Session(bootstrap=bootstrap, start=start, end=end, values=values) as session:
        answer = session.ask(query)
        return pa.Table.from_batches(answer.batches, answer.schema)


class Answer(NamedTuple):
    schema: "pa.Schema"
    # Raises ClientError for what goes wrong on the way.
    batches: "Iterator[pa.RecordBatch]"


class Session:
    """A database of its own, in which topics are tables."""

    def __init__(
        self,
        *,
        bootstrap: str | None,
        start: Bound = None,
        end: Bound = None,
        values: Values = DETECTED,
    ) -> None:
        if find_spec("duckdb") is None or find_spec("pyarrow") is None:
            raise ClientError("This needs DuckDB: pip install 'penstock-mq[sql]'.")
        if values.format not in VALUE_FORMATS:
            known = ", ".join(VALUE_FORMATS)
            raise ClientError(f"The value format {values.format!r} is unknown; there are: {known}.")
        import duckdb

        self._start, self._end, self._values = start, end, values
        self._resources = ExitStack()
        self._cluster = WireCluster(WireSettings(bootstrap=bootstrap_or_default(bootstrap)))
        self._resources.callback(self._cluster.close)
        self._database: Any = self._resources.enter_context(duckdb.connect(":memory:"))
        self._database.execute("SET TimeZone = 'UTC'")
        self._streams: list[_Stream] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def ask(self, query: str) -> Answer:
        """Raises ClientError, in a sentence, for what DuckDB refuses."""
        import duckdb

        wanted = read_query(query)
        there = self._cluster.partitions_known(wanted.tables) if wanted.tables else {}
        for name in there:
            self._add(name, wanted)
        try:
            reader = self._database.sql(query).to_arrow_reader()
        except duckdb.Error as error:
            missing = [name for name in wanted.tables if name not in there]
            if missing and "does not exist" in str(error):
                raise ClientError(f"The topic {missing[0]} does not exist.") from error
            if there and (unknown := _UNKNOWN_COLUMN.search(str(error))):
                raise ClientError(
                    f"There is no column {unknown[1]}; a topic has: {', '.join(COLUMNS)},"
                    f" {ERROR_COLUMN}. A field of its values is value.{unknown[1]}."
                ) from error
            raise self._explained(error) from error
        return Answer(reader.schema, self._batches(reader))

    def _batches(self, reader: "pa.RecordBatchReader") -> "Iterator[pa.RecordBatch]":
        import duckdb

        try:
            yield from reader
        except (duckdb.Error, OSError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        """What DuckDB makes of an error of ours is not for people."""
        ours = (stream.failure for stream in self._streams if stream.failure is not None)
        return next(ours, ClientError(one_line(error)))

    # Topics as tables

    def _add(self, topic: str, wanted: "Query") -> None:
        columns = wanted.columns
        stretches = plan(self._cluster, topic, self._start, self._end)
        table = TopicTable(self._cluster, topic, stretches, columns)
        looked_at = [column for column in ("key", "value") if column in columns]
        sample = TopicTable(self._cluster, topic, stretches, looked_at).head(SAMPLE_MAX)
        decoding = self._decoding(table, sample, wanted.fields)
        key_is_text = "key" in columns and as_text(sample["key"]) is not None
        stream = _Stream(table, decoding, key_is_text=key_is_text)
        name = f"__topic_{len(self._streams)}"
        self._streams.append(stream)
        self._database.register(name, stream)
        shown = [decoding.shown.get(column, quoted(column)) for column in columns]
        if "value" in columns:
            shown.append(f"{decoding.error} AS {ERROR_COLUMN}")
        view = f"CREATE VIEW {quoted(topic)} AS SELECT {', '.join(shown)} FROM {name}"
        try:
            self._database.execute(view)
        except Exception as error:
            raise ClientError(f"The schema can't be used: {one_line(error)}") from error

    def _decoding(
        self, table: TopicTable, sample: "pa.Table", fields: frozenset[str] | None
    ) -> "_Decoding":
        wanted = self._values
        if "value" not in table.columns or wanted.format == "bytes":
            return _Decoding()
        text = as_text(sample["value"])
        if wanted.format == "text":
            return _Decoding(to_arrow=to_text)
        if wanted.format in ("avro", "protobuf"):
            return _decoded_by(wanted, table.topic)
        if wanted.format == "json":
            return self._json(table, fields, is_framed=_is_framed(wanted))
        if text is not None and self._is_json(text):
            return self._json(table, fields)
        if self._is_framed_json(sample["value"]):
            return self._json(table, fields, is_framed=True)
        return _Decoding() if text is None else _Decoding(to_arrow=to_text)

    def _json(
        self, table: TopicTable, fields: frozenset[str] | None, *, is_framed: bool = False
    ) -> "_Decoding":
        value = parsed = "TRY_CAST(value AS JSON)"
        if self._values.schema is not None:
            value = f"TRY_CAST({parsed} AS STRUCT({self._values.schema}))"
        elif (structure := self._structure(table, is_framed)) is not None:
            # Each value is parsed once, and only what the query names is made of it.
            value = f"TRY(json_transform(value, {literal(only(structure, fields))}))"
        error = f"CASE WHEN NOT json_valid(value) THEN {literal(_NOT_JSON)} END"
        return _Decoding(
            to_arrow=framed_to_text if is_framed else to_text,
            shown={"value": f"{value} AS value"},
            error=f"coalesce({ERROR_COLUMN}, {error})" if is_framed else error,
        )

    def _is_framed_json(self, values: "pa.ChunkedArray") -> bool:
        """Whether all of them begin as the serialisers of a registry write them."""
        found = framed_to_text(values.combine_chunks())
        assert found.errors is not None
        is_framed: bool = found.errors.null_count == len(values)
        return is_framed and self._is_json(found.values)

    def _is_json(self, values: "pa.ChunkedArray | pa.Array") -> bool:
        """Whether all of them are objects or arrays; there must be some."""
        kind = "coalesce(json_type(TRY_CAST(value AS JSON)), '')"
        wrong = f"value IS NOT NULL AND {kind} NOT IN ('OBJECT', 'ARRAY')"
        count, wrong_count = self._over(
            values, f"SELECT count(value), count(*) FILTER ({wrong}) FROM looked_at"
        )
        return bool(count) and not wrong_count

    def _structure(self, table: TopicTable, is_framed: bool) -> str | None:
        """DuckDB's own word for the fields of JSON values; None if they have none in common."""
        values = TopicTable(self._cluster, table.topic, table.stretches, ("value",))
        looked_at = values.table() if table.size <= LOOKED_AT_MAX else values.head(LOOKED_AT_MAX)
        convert = framed_to_text if is_framed else to_text
        text = convert(looked_at["value"].combine_chunks()).values
        (structure,) = self._over(
            text, "SELECT json_group_structure(TRY_CAST(value AS JSON)) FROM looked_at"
        )
        # None of these whole numbers happened to be negative.
        found = str(structure).replace('"UBIGINT"', '"BIGINT"')
        return found if found.startswith(("{", "[")) else None

    def _over(self, values: Any, query: str) -> Sequence[Any]:
        """The only row of an answer about values that are at hand."""
        import pyarrow as pa

        row: Sequence[Any]

        self._database.register("looked_at", pa.table({"value": values}))
        try:
            (row,) = self._database.execute(query).fetchall()
        finally:
            self._database.unregister("looked_at")
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a query needs: tables by their names, and those columns that it may use."""

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    # The fields of values that it names; None if it may use all of a value.
    fields: frozenset[str] | None


def read_query(query: str) -> Query:
    """What is not named is not read. Raises ClientError for what is not one query."""
    import sqlglot
    from sqlglot import expressions as exp

    try:
        statements = [each for each in sqlglot.parse(query, dialect="duckdb") if each is not None]
    except sqlglot.errors.SqlglotError as error:
        raise ClientError(f"The query can't be read: {one_line(error)}") from error
    if len(statements) != 1:
        raise ClientError(f"One query is asked at a time, and there are {len(statements)}.")
    tree = statements[0]
    if not isinstance(tree, exp.Query | exp.Describe | exp.Summarize):
        raise ClientError("A topic is only read here: ask with SELECT, DESCRIBE or SUMMARIZE.")
    within = {each.alias_or_name for each in tree.find_all(exp.CTE)}
    tables = (each.name for each in tree.find_all(exp.Table) if not each.db)
    names = {each.name.lower() for each in tree.find_all(exp.Identifier)}
    if ERROR_COLUMN in names:
        names.add("value")
    is_all = not isinstance(tree, exp.Query) or any(
        not isinstance(each.parent, exp.Count) for each in tree.find_all(exp.Star)
    )
    columns = tuple(name for name in COLUMNS if is_all or name.lower() in names)
    return Query(
        tables=tuple(dict.fromkeys(name for name in tables if name and name not in within)),
        # Rows can't be counted without a column.
        columns=columns or ("offset",),
        fields=None if is_all else fields_of_values(tree),
    )


def fields_of_values(tree: "Expr") -> frozenset[str] | None:
    """Those that a query takes out of `value`; None if it also takes all of it."""
    from sqlglot import expressions as exp

    fields = set()
    for column in tree.find_all(exp.Column):
        names = [part.name.lower() for part in column.parts]
        if "value" in names:
            inside = names[names.index("value") + 1 :]
            if not inside:
                return None
            fields.add(inside[0])
    return frozenset(fields)


def only(structure: str, fields: frozenset[str] | None) -> str:
    """The part of a structure that has these fields; all of it if one is not there, so that an
    error about that one names those that are."""
    known = json.loads(structure)
    if not fields or not isinstance(known, dict):
        return structure
    kept = {name: kind for name, kind in known.items() if name.lower() in fields}
    is_found = {name.lower() for name in kept} == fields
    return json.dumps(kept) if is_found else structure


class Converted(NamedTuple):
    """A column, and, where a decoder has them, the reasons for what it could not decode."""

    values: "pa.Array"
    errors: "pa.Array | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoding:
    """What becomes of values: in Arrow first, then in the view that the query sees."""

    to_arrow: "Callable[[pa.Array], Converted] | None" = None
    # By column, if it is not shown as it is.
    shown: dict[str, str] = field(default_factory=dict)
    error: str = "CAST(NULL AS VARCHAR)"


class _Stream:
    """A topic as DuckDB scans it: from its start each time that a query does so."""

    def __init__(self, table: TopicTable, decoding: _Decoding, *, key_is_text: bool) -> None:
        self._table = table
        # What ended a scan before its time.
        self.failure: Exception | None = None
        self._conversions: dict[str, Callable[[pa.Array], Converted]] = {}
        if key_is_text:
            self._conversions["key"] = to_text
        if decoding.to_arrow is not None:
            self._conversions["value"] = decoding.to_arrow

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        empty = pa.RecordBatch.from_pylist([], self._table.schema)
        schema = self._converted(empty).schema
        reader = pa.RecordBatchReader.from_batches(schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> "Iterator[pa.RecordBatch]":
        try:
            yield from map(self._converted, self._table.batches())
        except Exception as error:
            self.failure = error
            raise

    def _converted(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        columns = {}
        for name in batch.schema.names:
            convert = self._conversions.get(name)
            converted = Converted(batch[name]) if convert is None else convert(batch[name])
            columns[name] = converted.values
            if converted.errors is not None:
                columns[ERROR_COLUMN] = converted.errors
        return pa.RecordBatch.from_pydict(columns)


def _is_framed(wanted: Values) -> bool:
    """Whether values have the header of a registry's serialisers."""
    if wanted.framing not in (None, "confluent"):
        raise ClientError(f"The framing {wanted.framing!r} is unknown; there is: 'confluent'.")
    return wanted.framing is not None


def _decoded_by(wanted: Values, topic: str) -> _Decoding:
    """Avro and Protobuf, by the same decoders as in Spark."""
    is_framed = _is_framed(wanted)
    decoder: ColumnDecoder
    if wanted.registry is not None:
        decoder = _registered(wanted, wanted.registry, wanted.subject or f"{topic}-value")
    elif wanted.format == "avro":
        from penstock.columns.values.avro.decoder import FRAME_BYTES, AvroFormat
        from penstock.columns.values.avro.schema import schema_text

        header = FRAME_BYTES if is_framed else 0
        decoder = AvroFormat(schema=schema_text(wanted.schema), header=header).open()
    else:
        from penstock.columns.values.protobuf.decoder import ProtobufFormat
        from penstock.columns.values.protobuf.sources import message_source

        source = message_source(wanted.schema, wanted.message)
        decoder = ProtobufFormat(source=source, framed=is_framed).open()

    def convert(values: "pa.Array") -> Converted:
        found = decoder.decode(values)
        return Converted(found.values, found.errors)

    return _Decoding(to_arrow=convert, error=ERROR_COLUMN)


def _registered(wanted: Values, registry: str, subject: str) -> "ColumnDecoder":
    from penstock.client.registered_values import avro_format, protobuf_format
    from penstock.columns.values.avro.schema import schema_text

    if wanted.format == "protobuf":
        return protobuf_format(registry, subject, wanted.message).open()
    schema = None if wanted.schema is None else schema_text(wanted.schema)
    return avro_format(registry, subject, schema).open()


def as_text(values: "pa.ChunkedArray") -> "pa.ChunkedArray | None":
    """None if some of it is not UTF-8."""
    import pyarrow as pa

    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def to_text(values: "pa.Array") -> Converted:
    """Bytes that are not UTF-8 are shown as escapes."""
    import pyarrow as pa

    try:
        return Converted(values.cast(pa.string()))
    except pa.ArrowInvalid:
        texts = (
            None if value is None else value.decode(errors="backslashreplace")
            for value in values.to_pylist()
        )
        return Converted(pa.array(texts, pa.string()))


def framed_to_text(values: "pa.Array") -> Converted:
    """JSON behind the header of a registry's serialisers."""
    from penstock.columns.values.framing import unframed_json

    found = unframed_json(values)
    return Converted(to_text(found.values).values, found.errors)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def one_line(error: Exception) -> str:
    """The first sentence of what a library has to say, without the query that it quotes."""
    text = str(error).split("\nLINE ")[0].split("\n\n")[0]
    return " ".join(text.split()).rstrip(".") + "."
