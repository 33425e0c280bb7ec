"""JSON by a schema: Spark's own parser, and a reason for each value that it can't take.

What can't be decoded: a value that is not UTF-8, is empty, or is not well-formed JSON; text after
the JSON value; a value that is not of the schema's type (an array where an object is wanted); and
any field, at any depth, whose value is not of the type that the schema gives it: a string for an
INT, a fraction for a BIGINT, a number beyond the type's range, a date that is none. The whole row
then has no value, also for the fields that are right.

What can: a field that is missing or null is null, fields that the schema does not name are
ignored, a STRING takes any JSON value as its text, and the JSON value null is null.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from penstock.columns.values.framing import FRAME_BYTES, NO_ZERO, TOO_SHORT
from penstock.columns.values.refusals import DecodeRefused
from penstock.spark.values.frames import SCRATCH, quoted, with_columns
from penstock.spark.values.text import NOT_UTF_8

# Each value is parsed as the only item of an array, followed by a marker: Spark's parser stops at
# the end of the first value and would not notice what comes after it.
ITEMS, COMPLETE, CORRUPT = "items", "complete", "corrupt"
OPENING, CLOSING = f'{{"{ITEMS}":[', f'\n],"{COMPLETE}":true}}'
# These decide how the parser reports what it can't read, which is what the error column is made of.
RESERVED_OPTIONS = {"mode", "columnnameofcorruptrecord"}
EMPTY = "The value is empty, where JSON was expected."
MALFORMED = "The value is not well-formed JSON."
WRONG_TYPE = "The JSON value does not have the type that the schema asks for."
NO_OBJECT = "The JSON value is not an object."
BYTES_MAX = 2**31 - 1
# Naming the field costs one expression for each; a schema wider than this gets a general reason.
NAMED_FIELDS_MAX = 200


def json_schema(schema: object) -> spark.DataType:
    """The type in Spark's own form; DDL is parsed by the active session, classic or remote."""
    if isinstance(schema, spark.DataType):
        found = schema
    elif isinstance(schema, str) and schema.strip():
        found = _parsed(schema)
    else:
        raise DecodeRefused("JSON needs schema=, as DDL text ('id BIGINT, name STRING') or a type.")
    if isinstance(found, spark.StructType) and not found.fields:
        raise DecodeRefused("The JSON schema has no fields.")
    return found


def _parsed(text: str) -> spark.DataType:
    try:
        return spark.DataType.fromDDL(text)
    except (AnalysisException, ValueError) as error:
        reason = " ".join(str(error).split("SQLSTATE")[0].split()).rstrip(".")
        raise DecodeRefused(f"The JSON schema {text!r} is not valid: {reason}.") from error


def decode_json(
    frame: DataFrame,
    *,
    column: str,
    into: str,
    error: str,
    schema: spark.DataType,
    options: dict[str, str],
    framed: bool = False,
) -> DataFrame:
    """`framed` values begin with the header of a schema registry's serialisers."""
    for name in options:
        if name.lower() in RESERVED_OPTIONS:
            raise DecodeRefused(f"The JSON option {name!r} can't be given: decode needs its own.")
    value, fault = quoted(column), _header_fault(quoted(column))
    if framed:
        value = sf.when(fault.isNull(), sf.substring(value, FRAME_BYTES + 1, BYTES_MAX))
    text = value.cast("string")
    parsed = sf.col(SCRATCH)
    # The parser replaces invalid bytes silently.
    fits = _fits(parsed) & sf.is_valid_utf8(text)
    decoded = sf.when(fits, parsed[ITEMS][0])
    reason = sf.when(text.isNotNull() & ~fits, _reason(text, schema, options))
    if framed:
        reason = sf.coalesce(fault, reason)
    return with_columns(
        frame, _parsed_items(text, schema, options), into=(into, decoded), error=(error, reason)
    )


def _header_fault(value: Column) -> Column:
    return sf.when(sf.length(value) <= FRAME_BYTES, sf.lit(TOO_SHORT)).when(
        sf.substring(value, 1, 1) != sf.lit(b"\0"), sf.lit(NO_ZERO)
    )


def _parsed_items(text: Column, kind: spark.DataType, options: dict[str, str]) -> Column:
    fields = [
        spark.StructField(ITEMS, spark.ArrayType(kind)),
        spark.StructField(COMPLETE, spark.BooleanType()),
        spark.StructField(CORRUPT, spark.StringType()),
    ]
    own = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    wrapped = sf.concat(sf.lit(OPENING), text, sf.lit(CLOSING))
    return sf.from_json(wrapped, spark.StructType(fields), options | own)


def _fits(parsed: Column) -> Column:
    whole = parsed[CORRUPT].isNull() & parsed[COMPLETE] & (sf.size(parsed[ITEMS]) == 1)
    return sf.coalesce(whole, sf.lit(False))


def _misfit(text: Column, kind: spark.DataType, options: dict[str, str]) -> Column:
    """Whether the text is not of that type; as an item of an array it is parsed only once."""
    parsed = sf.array(_parsed_items(text, kind, options))
    return sf.exists(parsed, lambda item: ~_fits(item))


def _reason(text: Column, schema: spark.DataType, options: dict[str, str]) -> Column:
    """Evaluated for failed rows only: their text is parsed again, by ever narrower schemas."""
    # Any JSON value fits a STRING, so that only the form of the text is checked.
    malformed = _misfit(text, spark.StringType(), options)
    reason = (
        sf.when(~sf.is_valid_utf8(text), sf.lit(NOT_UTF_8))
        .when(text.rlike(r"^\s*$"), sf.lit(EMPTY))
        .when(malformed, sf.lit(MALFORMED))
    )
    if isinstance(schema, spark.StructType):
        unnamed = spark.StructType([spark.StructField("", spark.StringType())])
        reason = reason.when(_misfit(text, unnamed, options), sf.lit(NO_OBJECT))
        for field in schema.fields[:NAMED_FIELDS_MAX]:
            alone = spark.StructType([field])
            sentence = (
                f"The JSON field {field.name!r} is not of type {field.dataType.simpleString()}."
            )
            reason = reason.when(_misfit(text, alone, options), sf.lit(sentence))
    return reason.otherwise(sf.lit(WRONG_TYPE))
