"""Proves that values are decoded in batch and stream on a plain session, and failures named."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from penstock.spark import decode
from penstock.spark.values import DecodeRefused
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig import run_available_now
from tests.unit.columns.values.avro_rows import record, written
from tests.unit.columns.values.messages import message_class, sample_file

SCHEMA = (
    "a INT, big BIGINT, b STRING, c ARRAY<INT>, d STRUCT<e: INT>, m MAP<STRING, INT>, "
    "t TIMESTAMP, f DOUBLE, day DATE, price DECIMAL(5,2), raw BINARY"
)
Sample = message_class(sample_file(), "sample.Sample")
AVRO = record(id="long", name="string", tags={"type": "array", "items": "string"})


def frame(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(n, value) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, "offset BIGINT, value BINARY")


def results(decoded: DataFrame) -> list[tuple[Any, str | None]]:
    rows = decoded.orderBy("offset").collect()
    return [(row.decoded, row.decode_error) for row in rows]


def test_json_that_can_be_decoded(spark: SparkSession) -> None:
    values = {
        b'{"a": 1, "b": "x", "c": [1, null], "d": {"e": 5}, "m": {"k": 2}}': {
            "a": 1,
            "b": "x",
            "c": [1, None],
            "d": {"e": 5},
            "m": {"k": 2},
        },
        b"{}": {},
        b' {"a": null} \n': {},
        b'{"unknown": {"x": 1}, "a": 2}': {"a": 2},
        # A STRING takes any value as its text.
        b'{"b": 5}': {"b": "5"},
        b'{"b": {"x": 1}}': {"b": '{"x":1}'},
        b'{"f": 1}': {"f": 1.0},
        b'{"raw": "aGk="}': {"raw": bytearray(b"hi")},
    }
    found = results(decode(frame(spark, list(values)), "json", schema=SCHEMA))
    for (row, error), expected in zip(found, values.values(), strict=True):
        assert error is None
        assert {k: v for k, v in row.asDict(recursive=True).items() if v is not None} == expected


MALFORMED = "The value is not well-formed JSON."
JSON_REFUSED = {
    b"": "The value is empty, where JSON was expected.",
    b"  \n": "The value is empty, where JSON was expected.",
    b"{": MALFORMED,
    b'{"a": 1,}': MALFORMED,
    b"{a: 1}": MALFORMED,
    b'{"a": 1} and more': MALFORMED,
    b'{"a": 1}{"a": 2}': MALFORMED,
    b'{"a": 1}, {"a": 2}': MALFORMED,
    b'{"unknown": nonsense}': MALFORMED,
    b'{"a": 1}}': MALFORMED,
    b'{"b": "\xff"}': "The value is not valid UTF-8.",
    b"\xff": "The value is not valid UTF-8.",
    b"5": "The JSON value is not an object.",
    b'"text"': "The JSON value is not an object.",
    b'[{"a": 1}]': "The JSON value is not an object.",
    b'{"a": "5"}': "The JSON field 'a' is not of type int.",
    b'{"a": 1.0}': "The JSON field 'a' is not of type int.",
    b'{"a": true}': "The JSON field 'a' is not of type int.",
    b'{"b": "x", "a": 3000000000}': "The JSON field 'a' is not of type int.",
    b'{"big": 9223372036854775808}': "The JSON field 'big' is not of type bigint.",
    b'{"c": [1, "x"]}': "The JSON field 'c' is not of type array<int>.",
    b'{"c": {"x": 1}}': "The JSON field 'c' is not of type array<int>.",
    b'{"d": {"e": "z"}}': "The JSON field 'd' is not of type struct<e:int>.",
    b'{"d": 5}': "The JSON field 'd' is not of type struct<e:int>.",
    b'{"m": {"k": "z"}}': "The JSON field 'm' is not of type map<string,int>.",
    b'{"t": "nonsense"}': "The JSON field 't' is not of type timestamp.",
    b'{"f": "x"}': "The JSON field 'f' is not of type double.",
    b'{"day": "2026-13-01"}': "The JSON field 'day' is not of type date.",
    b'{"price": 123456.0}': "The JSON field 'price' is not of type decimal(5,2).",
    b'{"raw": "@@"}': "The JSON field 'raw' is not of type binary.",
}


def test_json_that_cannot_be_decoded(spark: SparkSession) -> None:
    found = results(decode(frame(spark, [*JSON_REFUSED, b'{"a": 1}']), "json", schema=SCHEMA))
    assert [error for _, error in found] == [*JSON_REFUSED.values(), None]
    assert [row for row, _ in found[:-1]] == [None] * len(JSON_REFUSED)


def test_json_null_is_null_and_schemas_need_not_be_structs(spark: SparkSession) -> None:
    values: list[bytes | None] = [b"null", None, b"[1, 2]", b"[1, 2], [3]", b'["x"]', b"{}"]
    wrong = "The JSON value does not have the type that the schema asks for."
    kind = spark_types.ArrayType(spark_types.IntegerType())
    for schema in ("ARRAY<INT>", kind):
        assert results(decode(frame(spark, values), "json", schema=schema)) == [
            (None, None),
            (None, None),
            ([1, 2], None),
            (None, MALFORMED),
            (None, wrong),
            (None, wrong),
        ]


def test_json_takes_the_options_of_sparks_parser(spark: SparkSession) -> None:
    values: list[bytes | None] = [b'{"day": "04.03.2026"} // so', b'{"day": "2026-03-04"}']
    found = results(
        decode(
            frame(spark, values),
            "json",
            schema="day DATE",
            dateFormat="dd.MM.yyyy",
            allowComments=True,
        )
    )
    assert found[0][0].day.isoformat() == "2026-03-04"
    assert found[1] == (None, "The JSON field 'day' is not of type date.")


def test_text_in_any_encoding(spark: SparkSession) -> None:
    values: list[bytes | None] = ["grün".encode(), b"\xff", None, b""]
    assert results(decode(frame(spark, values), "text")) == [
        ("grün", None),
        (None, "The value is not valid UTF-8."),
        (None, None),
        ("", None),
    ]
    found = results(decode(frame(spark, [b"gr\xfcn", None]), "text", encoding="latin-1"))
    assert found == [("grün", None), (None, None)]
    found = results(decode(frame(spark, [b"\x00\xd8", b"\x00"]), "text", encoding="utf-16-le"))
    wrong = "The value is not valid text in the encoding utf-16-le."
    assert found == [(None, wrong), (None, wrong)]


def test_avro_and_its_failures(spark: SparkSession) -> None:
    value = {"id": 5, "name": "x", "tags": ["a"]}
    data = written(AVRO, value)
    decoded = decode(frame(spark, [data, None, data[:3]]), "avro", schema=json.dumps(AVRO))
    assert decoded.schema["decoded"].dataType.simpleString() == (
        "struct<id:bigint,name:string,tags:array<string>>"
    )
    (row, error), absent, (nothing, reason) = results(decoded)
    assert (row.asDict(), error) == (value, None)
    assert absent == (None, None)
    assert nothing is None
    assert reason == "The Avro field 'tags' can't be read at byte 3: the value ends too early."


def test_protobuf_and_its_failures(spark: SparkSession) -> None:
    data = Sample(a_string="x", points=[{"x": 1}], counts={"k": 2}).SerializeToString()
    decoded = decode(frame(spark, [data, None, b"\xff"]), "protobuf", schema=Sample)
    (row, error), absent, failed = results(decoded)
    assert error is None
    assert (row.a_string, row.points[0].x, row.counts, row.maybe) == ("x", 1, {"k": 2}, None)
    assert absent == (None, None)
    assert failed == (None, "The value is not a Protobuf message sample.Sample.")


def test_large_inputs_run_compiled_and_give_the_same(spark: SparkSession) -> None:
    data = [written(AVRO, {"id": n, "name": f"n{n}", "tags": ["t"] * (n % 3)}) for n in range(100)]
    values = spark.createDataFrame([(value,) for value in data], "value BINARY")
    many = values.crossJoin(spark.range(200)).coalesce(1)
    decoded = decode(many, "avro", schema=AVRO)
    summed = decoded.select(
        sf.sum("decoded.id"), sf.sum(sf.size("decoded.tags")), sf.count("decode_error")
    ).first()
    assert tuple(summed) == (99 * 50 * 200, sum(n % 3 for n in range(100)) * 200, 0)


def test_key_and_value_are_decoded_beside_each_other(spark: SparkSession) -> None:
    rows = [(written("long", 5), written(AVRO, {"id": 1, "name": "x", "tags": []}))]
    both = spark.createDataFrame(rows, "key BINARY, value BINARY")
    decoded = decode(both, "avro", schema="long", column="key", into="id", error="key_error")
    row = decode(decoded, "avro", schema=AVRO).select("id", "key_error", "decoded.name").first()
    assert tuple(row) == (5, None, "x")


@pytest.mark.parametrize("format_name", ["json", "avro"])
def test_a_filter_on_the_result_does_not_decode_twice(
    spark: SparkSession, format_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"json": "a INT", "avro": AVRO}[format_name]
    values = spark.range(3).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    decoded = decode(values, format_name, schema=schema)
    decoded.select("decoded").where("decode_error IS NULL").explain()
    plan = capsys.readouterr().out
    # The filter is above the one place where values are decoded.
    assert plan.count("Filter") == plan.count("rand(0)") == 1, plan
    assert plan.index("Filter") < plan.index("rand(0)"), plan
    assert plan.count("ArrowEvalPython") == (format_name == "avro"), plan


def test_streams_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    avro = written(AVRO, {"id": 1, "name": "x", "tags": []})
    rows = [(0, b'{"a": 1}', avro, Sample(a_int32=3).SerializeToString()), (1, b"{", b"", b"\xff")]
    fields = "offset BIGINT, json BINARY, avro BINARY, proto BINARY"
    spark.createDataFrame(rows, fields).write.parquet(str(source))
    stream = spark.readStream.schema(fields).parquet(str(source))
    stream = decode(stream, "json", schema="a INT", column="json", into="j", error="j_error")
    stream = decode(stream, "avro", schema=AVRO, column="avro", into="v", error="v_error")
    stream = decode(stream, "protobuf", schema=Sample, column="proto", into="p", error="p_error")
    good, bad = run_available_now(stream.drop("json", "avro", "proto"), tmp_path / "out")
    assert (good.j.a, good.v.name, good.p.a_int32) == (1, "x", 3)
    assert (good.j_error, good.v_error, good.p_error) == (None, None, None)
    assert (bad.j, bad.v, bad.p) == (None, None, None)
    assert None not in (bad.j_error, bad.v_error, bad.p_error)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"format": "xml"},
        "The value format 'xml' is unknown; there are: avro, json, protobuf, text.",
    ),
    ({"format": "text", "column": "body"}, "no column 'body'; it has: offset, value."),
    ({"format": "text", "into": "VALUE"}, "already has a column 'VALUE'"),
    ({"format": "text", "into": "x", "error": "x"}, "into= and error= both name the column 'x'."),
    ({"format": "text", "encoding": "klingon"}, "The text encoding 'klingon' is unknown."),
    ({"format": "text", "encoding": "base64"}, "The text encoding 'base64' is unknown."),
    ({"format": "text", "schema": "a INT"}, "The format text takes no schema."),
    ({"format": "text", "colour": "red"}, "The format text has no option 'colour'."),
    ({"format": "json"}, "JSON needs schema="),
    ({"format": "json", "schema": "a INT,,"}, "The JSON schema 'a INT,,' is not valid"),
    ({"format": "json", "schema": spark_types.StructType()}, "The JSON schema has no fields."),
    ({"format": "json", "schema": "a INT", "mode": "FAILFAST"}, "'mode' can't be given"),
    ({"format": "json", "schema": "a INT", "framing": "own"}, "The framing 'own' is unknown"),
    ({"format": "json", "schema": "a INT", "registry": "http://x"}, "and no registry."),
    ({"format": "avro"}, "Avro needs schema="),
    ({"format": "avro", "schema": "int", "framing": "own"}, "The framing 'own' is unknown"),
    ({"format": "avro", "schema": "int", "message": "x"}, "The format avro has no option"),
    ({"format": "avro", "schema": "int", "column": "offset"}, "the column 'offset' is bigint."),
    ({"format": "protobuf"}, "Protobuf needs schema="),
]


def test_json_behind_the_header_of_a_registry(spark: SparkSession) -> None:
    values = [b'\0\0\0\0\x07{"a": 1}', b"\0\0\0\0\x07", b'{"a": 1}', b"\0\0\0\0\x07{", None]
    decoded = decode(frame(spark, values), "json", schema="a INT", framing="confluent")
    rows = decoded.orderBy("offset").collect()
    assert [row.decoded and row.decoded.a for row in rows] == [1, None, None, None, None]
    assert [row.decode_error for row in rows] == [
        None,
        "The JSON value is shorter than the five bytes of its header.",
        "The header of the JSON value does not start with a zero byte.",
        "The value is not well-formed JSON.",
        None,
    ]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_wrong_arguments_are_refused_at_once(
    spark: SparkSession, arguments: dict[str, Any], sentence: str
) -> None:
    name = arguments.pop("format")
    with pytest.raises(DecodeRefused) as refused:
        decode(frame(spark, [b"x"]), name, **arguments)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_avro_of_many_versions_is_read_by_the_registry(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    """In one stream: each value by its own schema, all as of the newest."""
    topic, address = make_topic(), f"http://{broker.http}"
    registry = SchemaRegistryClient({"url": address})
    context = SerializationContext(topic, MessageField.VALUE)
    count = {"name": "count", "type": "int", "default": 1}
    newer = AVRO | {"fields": [*AVRO["fields"], count]}
    values = [
        AvroSerializer(registry, json.dumps(AVRO))({"id": 1, "name": "a", "tags": []}, context),
        AvroSerializer(registry, json.dumps(newer))(
            {"id": 2, "name": "b", "tags": ["t"], "count": 5}, context
        ),
        b"\0\0\0\xff\xff?",
    ]
    produce(topic, values)
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    decoded = decode(records, "avro", registry=address, subject=f"{topic}-value")
    rows = run_available_now(decoded.select("offset", "decoded", "decode_error"), tmp_path)
    assert [row.decoded and row.decoded.asDict() for row in rows] == [
        {"id": 1, "name": "a", "tags": [], "count": 1},
        {"id": 2, "name": "b", "tags": ["t"], "count": 5},
        None,
    ]
    assert rows[2].decode_error == "The registry has no schema with the id 65535."
    with pytest.raises(DecodeRefused, match="needs subject="):
        decode(records, "avro", registry=address)
