"""What Spark's types are in the files of a table."""

import pyarrow as pa
from pyspark.sql import types as spark

from penstock.pipelines.lakes.lake_table import LakeRefused

TIME_PRECISION_MAX = 6

_PLAIN: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Of the files that hold such rows; each column may be null, as in Spark's own files."""
    if not schema.fields:
        raise LakeRefused("The rows have no columns, so a table of files can't hold them.")
    _refuse_equal_names([field.name for field in schema], "The rows have two columns")
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.dataType, field.name)) for field in schema]
    )


def _arrow_type(kind: spark.DataType, column: str) -> pa.DataType:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    match kind:
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.TimeType() if kind.precision <= TIME_PRECISION_MAX:
            return pa.time64("us")
        case spark.ArrayType():
            return pa.list_(pa.field("element", _arrow_type(kind.elementType, column)))
        case spark.MapType():
            key = pa.field("key", _arrow_type(kind.keyType, column), nullable=False)
            return pa.map_(key, pa.field("value", _arrow_type(kind.valueType, column)))
        case spark.StructType():
            return _struct_type(kind, column)
    raise LakeRefused(
        f"The column {column!r} has the type {kind.simpleString()}, which a table of files can't"
        " hold."
    )


def _struct_type(kind: spark.StructType, column: str) -> pa.DataType:
    if not kind.fields:
        raise LakeRefused(
            f"The column {column!r} is a struct without fields, which a table of files can't hold."
        )
    _refuse_equal_names([field.name for field in kind], f"The column {column!r} has two fields")
    fields = [(field.name, _arrow_type(field.dataType, f"{column}.{field.name}")) for field in kind]
    return pa.struct(fields)


def _refuse_equal_names(names: list[str], subject: str) -> None:
    """Spark, Delta and Iceberg do not tell names apart by case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise LakeRefused(f"{subject} of the name {name!r}.")
        seen.add(name.lower())
