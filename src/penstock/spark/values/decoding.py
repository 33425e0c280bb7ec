"""`decode`: one more typed column, and beside it the reason where a value can't be decoded."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from penstock.columns.values.refusals import DecodeRefused
from penstock.spark.values.frames import (
    check_columns,
    column_type,
    quoted,
    require_binary,
    with_decoded,
)

Decoding = Callable[..., DataFrame]

FRAMINGS = (None, "confluent")


def decode(
    df: DataFrame,
    format: str,  # noqa: A002
    *,
    schema: object = None,
    column: str = "value",
    into: str = "decoded",
    error: str = "decode_error",
    **options: object,
) -> DataFrame:
    """Decode a column of a DataFrame, batch or streaming, and keep the rows that can't be decoded.

    The result has all columns of `df` and two more: `into`, the typed value, and `error`, null or
    one sentence that says why the value can't be decoded. A null value gives null in both. A row
    with an error has no value in `into`. No value, whatever its bytes, makes the query fail;
    `dead_letters` takes the rows that failed. Whatever is wrong with the arguments is refused
    here, before a query starts (DecodeRefused).

    Each value is decoded once, whichever filters follow, because no filter is moved below the
    decoding: filter on other columns before it.

    `format` is one of

    `"text"`: a STRING. Option `encoding`, "utf-8" by default: any encoding that Python
    knows.

    `"json"`: by `schema`, as DDL ("id BIGINT, tags ARRAY<STRING>") or as a pyspark type.
    Malformed text, text after the value, and a value of the wrong type for its field, at any
    depth, can't be decoded. A missing field is null, a field that the schema does not name is
    ignored, a STRING takes any JSON value as its text. Option `framing="confluent"` skips the five
    bytes that a schema registry's serialisers put first. Other options are those of Spark's
    `from_json` (timestampFormat, allowComments, ...).

    `"avro"`: by `schema`, the writer's schema: JSON text, or the path of a file that holds it.
    The types are those of Spark's `from_avro`. Bytes left over after the value can't be decoded.
    Option `framing="confluent"` as above. Options `registry`, the address of a schema registry, and
    `subject` use these bytes instead: each value is read by the schema whose id it begins with, and
    brought to the newest schema of the subject when the query is planned, or to `schema`.

    `"protobuf"`: `schema` is a generated class, or a descriptor set (bytes, or the path of a file
    that `protoc --include_imports --descriptor_set_out` made) together with
    `message="package.Name"`. Fields that know whether they were set (optional, oneof, messages)
    are null when unset, others have their default. Enums are STRING, uint32 is BIGINT, uint64 is
    DECIMAL(20,0), a Timestamp is a TIMESTAMP, a Duration an INTERVAL DAY TO SECOND, a wrapper
    such as Int32Value its value, Struct and its like JSON as a STRING; a message without fields
    is left out. Option `framing="confluent"` as above; with `registry` and `subject`, the newest
    schema of the subject takes the place of `schema`, and `message` is its first one by default.
    """
    chosen = FORMATS.get(format)
    if chosen is None:
        known = ", ".join(sorted(FORMATS))
        raise DecodeRefused(f"The value format {format!r} is unknown; there are: {known}.")
    check_columns(df, column=column, into=into, error=error)
    return chosen(df, schema, column, into, error, dict(options))


def _text(
    df: DataFrame, schema: object, column: str, into: str, error: str, options: dict[str, object]
) -> DataFrame:
    from penstock.spark.values.text import decode_text

    if schema is not None:
        raise DecodeRefused("The format text takes no schema.")
    encoding = options.pop("encoding", "utf-8")
    _refuse_others("text", options)
    _require_bytes(df, column, "Text")
    return decode_text(df, column=column, into=into, error=error, encoding=encoding)


def _json(
    df: DataFrame, schema: object, column: str, into: str, error: str, options: dict[str, object]
) -> DataFrame:
    from penstock.spark.values.json_text import decode_json, json_schema

    framed = _framed(options)
    if "registry" in options or "subject" in options:
        raise DecodeRefused("JSON takes schema= and framing='confluent', and no registry.")
    if framed:
        require_binary(df, column, "JSON with a header")
    _require_bytes(df, column, "JSON")
    wanted = {name: _option_text(value) for name, value in options.items()}
    kind = json_schema(schema)
    return decode_json(
        df, column=column, into=into, error=error, schema=kind, options=wanted, framed=framed
    )


def _avro(
    df: DataFrame, schema: object, column: str, into: str, error: str, options: dict[str, object]
) -> DataFrame:
    from penstock.columns.values.avro.decoder import FRAME_BYTES, AvroFormat
    from penstock.columns.values.avro.schema import schema_text

    framed = _framed(options)
    registry, subject = _registry(options)
    _refuse_others("avro", options)
    require_binary(df, column, "Avro")
    if registry is not None:
        from penstock.client.registered_values import avro_format

        text = None if schema is None else schema_text(schema)
        return with_decoded(df, quoted(column), avro_format(registry, subject, text), into, error)
    wanted = AvroFormat(schema=schema_text(schema), header=FRAME_BYTES if framed else 0)
    return with_decoded(df, quoted(column), wanted, into, error)


def _protobuf(
    df: DataFrame, schema: object, column: str, into: str, error: str, options: dict[str, object]
) -> DataFrame:
    from penstock.columns.values.protobuf.decoder import ProtobufFormat
    from penstock.columns.values.protobuf.sources import message_source

    framed = _framed(options)
    registry, subject = _registry(options)
    message = options.pop("message", None)
    _refuse_others("protobuf", options)
    require_binary(df, column, "Protobuf")
    if registry is not None:
        from penstock.client.registered_values import protobuf_format

        if schema is not None:
            raise DecodeRefused("Protobuf takes a schema or a registry, not both.")
        name = None if message is None else str(message)
        found = protobuf_format(registry, subject, name)
        return with_decoded(df, quoted(column), found, into, error)
    source = message_source(schema, None if message is None else str(message))
    wanted = ProtobufFormat(source=source, framed=framed)
    return with_decoded(df, quoted(column), wanted, into, error)


# The formats are imported when they are asked for: each has a library of its own.
FORMATS: dict[str, Decoding] = {"text": _text, "json": _json, "avro": _avro, "protobuf": _protobuf}


def _framed(options: dict[str, object]) -> bool:
    framing = options.pop("framing", None)
    if framing not in FRAMINGS:
        raise DecodeRefused(f"The framing {framing!r} is unknown; there is: 'confluent'.")
    return framing is not None


def _registry(options: dict[str, object]) -> tuple[str | None, str | None]:
    """The address of a registry, and a subject in it."""
    registry, subject = options.pop("registry", None), options.pop("subject", None)
    if registry is None and subject is not None:
        raise DecodeRefused("A subject needs registry=, as in 'http://127.0.0.1:9094'.")
    return (
        None if registry is None else str(registry),
        None if subject is None else str(subject),
    )


def _refuse_others(name_of_format: str, options: dict[str, object]) -> None:
    for name in options:
        raise DecodeRefused(f"The format {name_of_format} has no option {name!r}.")


def _require_bytes(df: DataFrame, column: str, what: str) -> None:
    found = column_type(df, column).simpleString()
    if found not in {"binary", "string"}:
        raise DecodeRefused(
            f"{what} is decoded from BINARY or STRING, and the column {column!r} is {found}."
        )


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
