"""The rows that a test case gives to a source, typed, and whether they are still to be decoded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

from penstock.pipelines.specification.model import (
    ArchiveSource,
    Case,
    Row,
    Source,
    TopicSource,
    ValueFormat,
)
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.specification.shaping import RECORD_COLUMNS
from penstock.pipelines.trying.records import (
    topic_of,
    where_it_lay,
    with_headers,
)
from penstock.pipelines.trying.typed_values import NotOfType, typed_row

Filling = Callable[[Row, int], Row]
Batches = tuple[tuple[Mapping[str, Any], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRows:
    """What a source yields in a test: one sequence of typed rows for each micro-batch."""

    schema: spark.StructType
    is_decoded: bool
    batches: Batches


def given_rows(
    case: Case, source: Source, raw: spark.StructType, decoded: spark.StructType
) -> GivenRows:
    """The case's rows for this source; none when the case does not name it.

    Rows of a topic are either records, which have a value and are decoded in the test, or rows as
    they are after decoding.
    """
    batches = case.given.get(source.name, ())
    if not _decodes(source):
        return _typed(case, source, batches, raw, is_decoded=False)
    is_record = [_is_record(row, source, decoded) for batch in batches for row in batch]
    if any(is_record) and not all(is_record):
        raise _refused(
            case,
            f"{source.name}: either all rows are records with a value, or none is; a value may be"
            " given as a mapping, which becomes JSON.",
        )
    if all(is_record) and is_record:
        _refuse_unencoded(case, source, batches)
        return _typed(case, source, batches, raw, is_decoded=False)
    return _typed(case, source, batches, decoded, is_decoded=True)


def _decodes(source: Source) -> bool:
    return isinstance(source, TopicSource | ArchiveSource) and source.decoding is not None


def _is_record(row: Row, source: Source, decoded: spark.StructType) -> bool:
    """A row with the column that is decoded, and nothing that a record does not have."""
    assert isinstance(source, TopicSource | ArchiveSource)
    assert source.decoding is not None
    column = source.decoding.column
    is_field = column.lower() in {name.lower() for name in decoded.names}
    return column in row and set(row) <= set(RECORD_COLUMNS) and not is_field


def _refuse_unencoded(case: Case, source: Source, batches: Sequence[Sequence[Row]]) -> None:
    """Only JSON can be made of a mapping; of Avro and Protobuf the bytes are needed."""
    assert isinstance(source, TopicSource | ArchiveSource)
    assert source.decoding is not None
    decoding = source.decoding
    if decoding.format in (ValueFormat.JSON, ValueFormat.TEXT):
        return
    for number, row in enumerate((row for batch in batches for row in batch), 1):
        if not isinstance(row[decoding.column], bytes | None):
            raise _refused(
                case,
                f"{source.name}, row {number}: a value in {decoding.format} is given as bytes"
                " (!!binary in YAML), or rows are given as they are after decoding.",
            )


def _typed(
    case: Case,
    source: Source,
    batches: Sequence[Sequence[Row]],
    schema: spark.StructType,
    *,
    is_decoded: bool,
) -> GivenRows:
    fill = _filling(source, schema, is_decoded=is_decoded)
    result = []
    offset = 0
    for batch_number, batch in enumerate(batches, 1):
        rows = []
        for row_number, row in enumerate(batch, 1):
            try:
                rows.append(typed_row(fill(row, offset), schema))
            except NotOfType as problem:
                in_batch = f", micro-batch {batch_number}" if len(batches) > 1 else ""
                sentence = f"{source.name}{in_batch}, row {row_number}: {problem}"
                raise _refused(case, sentence) from None
            offset += 1
        result.append(tuple(rows))
    return GivenRows(schema=schema, is_decoded=is_decoded, batches=tuple(result))


def _filling(source: Source, schema: spark.StructType, *, is_decoded: bool) -> Filling:
    """Adds what a topic gives to each record, where it is a column here and was left out."""
    if not isinstance(source, TopicSource | ArchiveSource):
        return lambda row, offset: row
    topic = topic_of(source)
    kept = kept_columns(source, schema) if is_decoded else schema.names

    def fill(row: Row, offset: int) -> Row:
        added = where_it_lay(topic, offset)
        named = row if is_decoded else with_headers(row)
        return {**{name: added[name] for name in kept if name in added}, **named}

    return fill


def kept_columns(source: TopicSource | ArchiveSource, decoded: spark.StructType) -> list[str]:
    """The columns of a decoded dataset that are the record's own: the last ones, in its order.

    A field of the value that has the name of one of them stands further to the front.
    """
    assert source.decoding is not None
    kept: list[str] = []
    last = len(RECORD_COLUMNS)
    for name in reversed(decoded.names):
        if name not in source.decoding.keep or RECORD_COLUMNS.index(name) >= last:
            break
        last = RECORD_COLUMNS.index(name)
        kept.append(name)
    return kept


def _refused(case: Case, sentence: str) -> SpecificationRefused:
    return SpecificationRefused.at(case.place, f"The test {case.name!r}: {sentence}")
