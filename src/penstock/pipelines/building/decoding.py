"""Records to rows: decodes one column of a source, and sets aside what can't be decoded."""

from dataclasses import fields, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from penstock.columns.layout import COLUMNS
from penstock.pipelines.building.refusing import refusing
from penstock.pipelines.specification.model import ArchiveSource, Decoding, TopicSource, ValueFormat
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.spark.options.given import Given
from penstock.spark.values import decode
from penstock.spark.values.dead_letters import ORIGINS, dead_letters
from penstock.spark.values.frames import quoted

RecordSource = TopicSource | ArchiveSource

VALUE, ERROR = "__penstock_value", "__penstock_error"
# What is counted of each source that decodes, by the name of Spark's observation.
OBSERVATION = "decoding."
RECORDS, UNDECODABLE_RECORDS = "records", "undecodable"
COLUMNS_OPTION = "columns"
KEEP_DEFAULT = next(field.default for field in fields(Decoding) if field.name == "keep")


def decoded_rows(records: DataFrame, source: RecordSource) -> DataFrame:
    """The fields of the records that can be decoded, as columns, and the columns that are kept."""
    decoding = source.decoding
    assert decoding is not None
    tried = _tried(records, source, source.name)
    good = tried.where(quoted(ERROR).isNull())
    return good.select(*_columns(tried, records, source, decoding))


def undecodable_records(records: DataFrame, source: RecordSource, name: str) -> DataFrame:
    """The other records as they were, each with the reason in a header."""
    decoding = source.decoding
    assert decoding is not None
    tried = _tried(records, source, name)
    with refusing(decoding.place):
        return dead_letters(tried, error=ERROR, value=decoding.column)


def for_rows(source: RecordSource) -> RecordSource:
    """The same source, told to read only the columns that its rows are made of."""
    decoding = source.decoding
    if decoding is None or not isinstance(source, TopicSource):
        return source
    return _with_columns(source, (decoding.column, *decoding.keep))


def for_dead_letters(source: RecordSource) -> RecordSource:
    """The same source, told to read all that a dead letter tells of its origin."""
    decoding = source.decoding
    if decoding is None or not isinstance(source, TopicSource):
        return source
    return _with_columns(source, ("key", decoding.column, *ORIGINS.values(), "headers"))


def _with_columns(source: TopicSource, wanted: tuple[str, ...]) -> TopicSource:
    if COLUMNS_OPTION in Given.of(source.options):
        return source
    names = ",".join(column for column in COLUMNS if column in wanted)
    return replace(source, options={**source.options, COLUMNS_OPTION: names})


def _tried(records: DataFrame, source: RecordSource, name: str) -> DataFrame:
    decoding = source.decoding
    assert decoding is not None
    if decoding.format is ValueFormat.JSON and decoding.schema is not None:
        with refusing(decoding.place, decoding.place):
            DataType.fromDDL(decoding.schema)
    with refusing(decoding.place):
        tried = decode(
            records,
            decoding.format.value,
            schema=decoding.schema,
            column=decoding.column,
            into=VALUE,
            error=ERROR,
            **decoding.options,
        )
        return tried.observe(
            OBSERVATION + name,
            sf.count(sf.lit(1)).alias(RECORDS),
            sf.count_if(quoted(ERROR).isNotNull()).alias(UNDECODABLE_RECORDS),
        )


def _columns(
    tried: DataFrame, records: DataFrame, source: RecordSource, decoding: Decoding
) -> list[Column]:
    kind = tried.schema[VALUE].dataType
    if isinstance(kind, StructType):
        own = {name: sf.col(VALUE).getField(name).alias(name) for name in kind.names}
    else:
        own = {decoding.into: sf.col(VALUE).alias(decoding.into)}
    taken = {name.lower() for name in own}
    kept = [quoted(name) for name in records.columns if name in decoding.keep]
    if decoding.keep == KEEP_DEFAULT:
        # Nobody asked for these, so that a decoded field of the same name comes first.
        kept = [
            quoted(name)
            for name in records.columns
            if name in decoding.keep and name.lower() not in taken
        ]
    else:
        _refuse_clashes(taken, source, decoding)
    return [*own.values(), *kept]


def _refuse_clashes(taken: set[str], source: RecordSource, decoding: Decoding) -> None:
    for name in decoding.keep:
        if name.lower() in taken:
            raise SpecificationRefused.at(
                decoding.place,
                f"The source {source.name} keeps the record's column {name}, and the decoded value "
                f"has a field of that name: leave {name} out of keep.",
            )
