"""Topics as Arrow tables and questions in SQL, of a real broker."""

import io
import json
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
import pytest

import penstock
from penstock.client import Producer
from penstock.client.errors import ClientError
from penstock.client.sql import Values
from penstock.testing import Broker
from tests.e2e.commands import Shell, fresh
from tests.unit.columns.values.messages import descriptor_set, message_class, sample_file

AVRO = {"type": "record", "name": "Reading", "fields": [{"name": "celsius", "type": "double"}]}
T0 = datetime(2026, 5, 1, 12, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)


@pytest.fixture
def bootstrap(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.create_topic(
        fresh("sql"), partitions=2, settings={"retention.ms": "-1"}
    )


@pytest.fixture
def shell(penstock_session_broker: Broker) -> Shell:
    return Shell.at(penstock_session_broker)


def send(bootstrap: str, topic: str, values: list[bytes | None], partition: int = 0) -> None:
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(
                topic,
                value,
                key=b"k%d" % number,
                partition=partition,
                timestamp_ms=T0_MS + number * 1000,
            )


def test_a_topic_is_a_table_by_partition_and_offset(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"a", None, b"c"])
    send(bootstrap, topic, [b"x"], partition=1)
    table = penstock.read_arrow(topic, bootstrap=bootstrap)
    assert table["value"].to_pylist() == [b"a", None, b"c", b"x"]
    assert table["offset"].to_pylist() == [0, 1, 2, 0]
    assert table["partition"].to_pylist() == [0, 0, 0, 1]
    assert table["timestamp"].to_pylist()[0] == T0
    assert penstock.read_pandas(topic, bootstrap=bootstrap)["key"].tolist()[:2] == [b"k0", b"k1"]
    frame = penstock.read_polars(topic, columns=["value"], bootstrap=bootstrap)
    assert frame["value"].to_list() == [b"a", None, b"c", b"x"]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1, None, [b"b", b"c", b"d"]),
        (None, 2, [b"a", b"b"]),
        ("-2", None, [b"c", b"d"]),
        (datetime(2026, 5, 1, 12, 0, 1, tzinfo=UTC), f"@{T0_MS + 3000}", [b"b", b"c"]),
        ({0: 3}, None, [b"d"]),
        ("end", None, []),
        (99, None, []),
    ],
)
def test_bounds(
    bootstrap: str, topic: str, start: object, end: object, expected: list[bytes]
) -> None:
    send(bootstrap, topic, [b"a", b"b", b"c", b"d"])
    table = penstock.read_arrow(topic, start, end, bootstrap=bootstrap)  # type: ignore[arg-type]
    assert table["value"].to_pylist() == expected
    assert table.schema.names[0] == "key"


def test_what_can_not_be_read_is_refused_in_a_sentence(bootstrap: str, topic: str) -> None:
    for arguments, sentence in (
        ({"start": "soon"}, "'soon' is not a position"),
        ({"start": {7: 1}}, "has no partition 7"),
        ({"columns": ["nothing"]}, "A topic has no column 'nothing'"),
    ):
        with pytest.raises(ClientError, match=sentence):
            penstock.read_arrow(topic, bootstrap=bootstrap, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="does not exist"):
        penstock.read_arrow(fresh("missing"), bootstrap=bootstrap)


def test_fields_of_json_values(bootstrap: str, topic: str) -> None:
    readings = [{"room": "a", "n": 1}, {"room": "b", "n": 2, "more": {"deep": [1.5]}}, {"n": -3}]
    send(bootstrap, topic, [json.dumps(each).encode() for each in readings])
    send(bootstrap, topic, [None], partition=1)
    found = penstock.sql(
        f"SELECT value.room, value.n, value.more.deep[1] AS deep, decode_error"
        f' FROM "{topic}" ORDER BY partition, "offset"',
        bootstrap=bootstrap,
    )
    assert found.to_pylist() == [
        {"room": "a", "n": 1, "deep": None, "decode_error": None},
        {"room": "b", "n": 2, "deep": 1.5, "decode_error": None},
        {"room": None, "n": -3, "deep": None, "decode_error": None},
        {"room": None, "n": None, "deep": None, "decode_error": None},
    ]


def test_a_value_that_is_not_json_is_null_with_a_reason(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b'{"n": 1}', b"nonsense", b"\xff"])
    query = f'SELECT value.n, decode_error FROM "{topic}" ORDER BY "offset"'
    for values in (Values(format="json"), Values(format="json", schema="n BIGINT")):
        rows = penstock.sql(query, values=values, bootstrap=bootstrap).to_pylist()
        assert [row["n"] for row in rows] == [1, None, None]
        assert [row["decode_error"] is None for row in rows] == [True, False, False]


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([b"hot", b"cold"], "VARCHAR", ["hot", "cold"]),
        ([b"\xff\x00", b"cold"], "BLOB", [b"\xff\x00", b"cold"]),
        # Numbers are JSON too, but nobody would ask for a field of them.
        ([b"21", b"22"], "VARCHAR", ["21", "22"]),
    ],
)
def test_what_is_not_json_is_text_or_bytes(
    bootstrap: str, topic: str, values: list[bytes | None], kind: str, shown: list[object]
) -> None:
    send(bootstrap, topic, values)
    query = f'SELECT value, typeof(value) AS kind FROM "{topic}" ORDER BY "offset"'
    rows = penstock.sql(query, bootstrap=bootstrap).to_pylist()
    assert [row["value"] for row in rows] == shown
    assert {row["kind"] for row in rows} == {kind}


def test_avro_values(bootstrap: str, topic: str) -> None:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, AVRO, {"celsius": 21.5})
    send(bootstrap, topic, [b"\x00\x00\x00\x00\x07" + written.getvalue(), b"\x01"])
    values = Values(format="avro", schema=json.dumps(AVRO), framing="confluent")
    query = f'SELECT value.celsius, decode_error FROM "{topic}" ORDER BY "offset"'
    rows = penstock.sql(query, values=values, bootstrap=bootstrap).to_pylist()
    assert rows[0] == {"celsius": 21.5, "decode_error": None}
    assert rows[1]["celsius"] is None
    assert "shorter" in rows[1]["decode_error"]


@pytest.mark.parametrize("chosen", [Values(format="json", framing="confluent"), Values()])
def test_json_values_behind_the_header_of_a_registry(
    bootstrap: str, topic: str, chosen: Values
) -> None:
    framed = [b'\0\0\0\0\x07{"celsius": 21.5}', b'\0\0\0\0\x08{"celsius": 3}', None]
    broken = [b'{"celsius": 1}', b"\0\0\0\0\x07{"] if chosen.framing else []
    send(bootstrap, topic, [*framed, *broken])
    query = f'SELECT value.celsius, decode_error FROM "{topic}" ORDER BY "offset"'
    rows = penstock.sql(query, values=chosen, bootstrap=bootstrap).to_pylist()
    assert [row["celsius"] for row in rows] == [21.5, 3.0, *(None for _ in rows[2:])]
    assert [row["decode_error"] for row in rows[:3]] == [None] * 3
    if broken:
        assert "does not start with a zero byte" in rows[3]["decode_error"]
        assert rows[4]["decode_error"] == "The value is not valid JSON."


def test_protobuf_values(bootstrap: str, topic: str) -> None:
    sample = message_class(sample_file(), "sample.Sample")
    send(bootstrap, topic, [sample(a_string="x").SerializeToString()])
    values = Values(
        format="protobuf", schema=descriptor_set(sample_file()), message="sample.Sample"
    )
    found = penstock.sql(
        f'SELECT value.a_string FROM "{topic}"', values=values, bootstrap=bootstrap
    )
    assert found.to_pylist() == [{"a_string": "x"}]


def test_topics_are_joined_with_each_other_and_with_themselves(
    bootstrap: str, topic: str, penstock_session_broker: Broker
) -> None:
    other = penstock_session_broker.create_topic(fresh("rooms"))
    send(bootstrap, topic, [b'{"room": 1}', b'{"room": 2}'])
    send(bootstrap, other, [b'{"id": 1, "name": "attic"}'])
    found = penstock.sql(
        f'WITH r AS (SELECT value.room FROM "{topic}")'
        f' SELECT o.value.name FROM r JOIN "{other}" o ON o.value.id = r.room'
        f' JOIN "{topic}" again ON again.value.room = r.room',
        bootstrap=bootstrap,
    )
    assert found.to_pylist() == [{"name": "attic"}]


def test_an_empty_topic_has_no_rows(bootstrap: str, topic: str) -> None:
    found = penstock.sql(f'SELECT * FROM "{topic}"', bootstrap=bootstrap)
    assert found.num_rows == 0
    assert isinstance(found, pa.Table)
    count = penstock.sql(f'SELECT count(*) AS n FROM "{topic}"', bootstrap=bootstrap)
    assert count.to_pylist() == [{"n": 0}]


def test_the_command_prints_tables_json_and_csv(shell: Shell, bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b'{"a": 1.5, "ok": true}', b'{"a": null, "ok": false}'])
    query = f'SELECT key, value.a, value.ok, value FROM "{topic}" ORDER BY "offset"'
    lines = shell.run("sql", query).splitlines()
    assert lines[0].split() == ["KEY", "A", "OK", "VALUE"]
    assert lines[1].split()[:3] == ["k0", "1.5", "true"]
    assert lines[2].split()[:3] == ["k1", "-", "false"]
    rows = [json.loads(line) for line in shell.run("sql", "--json", query).splitlines()]
    assert rows[0] == {"key": "k0", "a": 1.5, "ok": True, "value": {"a": 1.5, "ok": True}}
    assert shell.run("sql", "--csv", f'SELECT key, value.a FROM "{topic}"').splitlines() == [
        "key,a",
        "k0,1.5",
        "k1,",
    ]


def test_the_command_refuses_in_a_sentence(shell: Shell, topic: str) -> None:
    missing = fresh("missing")
    for query, sentence in (
        (f'SELECT 1 FROM "{missing}"', f"The topic {missing} does not exist."),
        (f'SELECT nothing FROM "{topic}"', "There is no column nothing; a topic has: key,"),
        (f'DELETE FROM "{topic}"', "A topic is only read here"),
        ("SELECT 1; SELECT 2", "One query is asked at a time, and there are 2."),
        ("SELECT (", "The query can't be read"),
        (f'SELECT 1 / "offset" + key FROM "{topic}"', "Error"),
    ):
        assert sentence in shell.fails("sql", query)
    assert "exclude each other" in shell.fails("sql", "--json", "--csv", "SELECT 1", code=2)
    assert "can't be used" in shell.fails(
        "sql", "--values", "json", "--schema", "n NONSENSE", f'SELECT value FROM "{topic}"'
    )
