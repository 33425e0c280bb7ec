"""Proves what becomes of bodies: which records they are, where these go, and what is refused."""

import json
import tracemalloc
from typing import Any

import pytest

from penstock.frontdoor.http.limits import JSON_DEPTH_MAX
from penstock.model.errors import Reason, Refused
from penstock.model.limits import MIB
from tests.unit.clocks import START_MS
from tests.unit.frontdoor.http.client import Client, Response


@pytest.fixture
def client() -> Client:
    made = Client()
    made.fake.topic("t")
    made.fake.topic("wide", partitions=4)
    return made


def problem(response: Response, status: int) -> str:
    assert response.status == status, response.body
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    detail: str = document["detail"]
    assert detail.endswith((".", "!"))
    return detail


def rows(client: Client, topic: str = "t", partition: int = 0) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in client.fake.records(topic, partition)]


async def test_json_values_are_stored_as_compact_text_and_keep_their_numbers() -> None:
    client = Client()
    client.fake.topic("t")
    body = '{"records": [{"value": {"a": 1.10, "b" : [1, 123456789012345678901234567890]}}]}'
    response = await client.post(body)
    assert response.status == 200
    assert response.json() == {"results": [{"partition": 0, "offset": 0}]}
    assert rows(client) == [(None, b'{"a":1.10,"b":[1,123456789012345678901234567890]}')]


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        ({"value": "x"}, None, b'"x"'),
        ({"value": "x", "encoding": "text"}, None, b"x"),
        ({"value": "AAH/", "encoding": "base64"}, None, b"\x00\x01\xff"),
        ({"value": None, "key": "k"}, b"k", None),
        ({"key": "k"}, b"k", None),
        ({"key": {"id": 1}, "key_encoding": "json", "value": 0}, b'{"id":1}', b"0"),
        ({"key": "/w==", "key_encoding": "base64", "value": 0}, b"\xff", b"0"),
        ({"value": "", "encoding": "text"}, None, b""),
    ],
)
async def test_an_explicit_word_says_how_a_value_is_stored(
    record: dict[str, Any], key: bytes | None, value: bytes | None
) -> None:
    client = Client()
    client.fake.topic("t")
    assert (await client.post({"records": [record]})).status == 200
    assert rows(client) == [(key, value)]


async def test_headers_and_times_are_kept() -> None:
    client = Client()
    client.fake.topic("t")
    await client.post({"records": [{"value": 1, "headers": {"a": "b", "n": None}}]})
    binary = [{"name": "x", "value": "/w==", "encoding": "base64"}, {"name": "x"}]
    await client.post({"records": [{"value": 2, "headers": binary, "timestamp": 77}]})
    first, second = client.fake.records("t")
    assert first.headers == (("a", b"b"), ("n", None))
    assert first.timestamp_ms == START_MS
    assert second.headers == (("x", b"\xff"), ("x", None))
    assert second.timestamp_ms == 77


async def test_a_record_can_be_delivered_later() -> None:
    client = Client()
    client.fake.topic("t")
    records = [
        {"value": 1, "delay_ms": 500, "headers": {"a": "b"}},
        {"value": 2, "deliver_at": 1_900_000_000_000},
        {"value": 3, "deliver_at": "2030-01-01T00:00:00Z"},
    ]
    assert (await client.post({"records": records})).status == 200
    binary = {"content-type": "application/octet-stream"}
    target = "/v1/topics/t/records?delay_ms=7"
    assert (await client.ask("POST", target, b"x", binary)).status == 200
    assert [record.headers for record in client.fake.records("t")] == [
        (("a", b"b"), ("penstock.deliver.after", b"500")),
        (("penstock.deliver.at", b"1900000000000"),),
        (("penstock.deliver.at", b"2030-01-01T00:00:00Z"),),
        (("penstock.deliver.after", b"7"),),
    ]
    for wrong in ({"delay_ms": 1, "deliver_at": 2}, {"deliver_at": "soon"}, {"delay_ms": -1}):
        answer = await client.post({"records": [{"value": 1, **wrong}]})
        assert answer.status == 400, answer.body


async def test_keys_go_where_kafka_puts_them_and_partitions_where_they_say() -> None:
    client = Client()
    client.fake.topic("wide", partitions=7)
    records = [{"key": "21", "value": 1}, {"partition": 5, "value": 2}, {"key": "21", "value": 3}]
    response = await client.post({"records": records}, "wide")
    place = (-973932308 & 0x7FFFFFFF) % 7
    assert [each["partition"] for each in response.json()["results"]] == [place, 5, place]
    assert rows(client, "wide", place) == [(b"21", b"1"), (b"21", b"3")]


async def test_records_without_a_key_stay_together() -> None:
    client = Client()
    client.fake.topic("wide", partitions=4)
    response = await client.post({"records": [{"value": each} for each in range(10)]}, "wide")
    assert len({each["partition"] for each in response.json()["results"]}) == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "empty"),
        ("{", "truncated"),
        ("[]", "expected `object`"),
        ("{}", "missing required field `records`"),
        ('{"records": []}', "length >= 1"),
        ('{"records": [{"value": 1}], "more": 2}', "unknown field `more`"),
        ('{"records": [{"valeu": 1}]}', "unknown field `valeu`"),
        ('{"records": [{"value": nope}]}', "invalid character"),
        ('{"records": [{"value": 1, "partition": -1}]}', "at `$.records[0].partition`."),
        ('{"records": [{}, {"headers": [{"name": 1}]}]}', "at `$.records[1].headers[0].name`."),
        ('{"records": [{}, 7]}', "expected `object`, got `int` - at `$.records[1]`."),
        ('{"records": [{"value": 1}, {"value": 1, "partition": 9}]}', "Record 1 is for partition"),
        ('{"records": [{"value": 1, "encoding": "xml"}]}', "invalid enum value"),
        ('{"records": [{"value": 1, "encoding": "text"}]}', "value of record 0 must be a string"),
        ('{"records": [{"value": "!", "encoding": "base64"}]}', "value of record 0 is not base64"),
        ('{"records": [{"key": 7, "value": 1}]}', '"key_encoding": "json"'),
        (b'{"records": [{"value": "\xff"}]}', "not UTF-8"),
        ('{"records": [{"value": "\\ud800"}]}', "can't be read"),
    ],
)
async def test_a_bad_body_is_refused_precisely_and_nothing_is_written(
    client: Client, body: str, says: str
) -> None:
    assert says in problem(await client.post(body), 400)
    assert not client.fake.logs


@pytest.mark.parametrize("deep", [JSON_DEPTH_MAX + 1, 100_000])
async def test_json_that_is_nested_too_deeply_is_refused(client: Client, deep: int) -> None:
    value = "[" * deep + "]" * deep
    body = f'{{"records": [{{"value": {value}}}]}}'
    assert "inside each other" in problem(await client.post(body), 400)
    line = f'{{"value": {value}}}'
    answer = await client.post(line, content_type="application/x-ndjson")
    assert answer.status == 400
    assert not client.fake.logs


async def test_brackets_in_strings_are_not_depth(client: Client) -> None:
    value = json.dumps({"text": '[{"' * 200, "flat": [[1]] * 200})
    assert (await client.post(f'{{"records": [{{"value": {value}}}]}}')).status == 200


@pytest.mark.parametrize(("deep", "status"), [(JSON_DEPTH_MAX, 200), (JSON_DEPTH_MAX + 1, 400)])
async def test_depth_is_counted_across_long_strings(client: Client, deep: int, status: int) -> None:
    text = json.dumps('[\\"{' * 30_000 + "\\")
    value = f"[{text}, {'[' * (deep - 1)}{text}{']' * (deep - 1)}, {text}]"
    assert (await client.post(f'{{"records": [{{"value": {value}}}]}}')).status == status


JSON_TYPE, NDJSON_TYPE = "application/json", "application/x-ndjson"
EVENTS_TYPE = "application/cloudevents-batch+json"


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        (JSON_TYPE, '{"records": [' + "{}," * 500_000 + "{}]}", 413),
        (JSON_TYPE, '{"records": [' + "1," * 500_000 + "1]}", 400),
        (NDJSON_TYPE, "{}\n" * 500_000, 413),
        (EVENTS_TYPE, "[" + "{}," * 500_000 + "{}]", 413),
        (JSON_TYPE, '{"records": [{"value": [' + "[]," * 200 + f'"{"x" * 2_000_000}"]}}]}}', 200),
    ],
    ids=["json", "numbers", "lines", "events", "depth"],
)
async def test_a_body_takes_no_more_than_a_few_times_its_size(
    client: Client, content_type: str, body: str, status: int
) -> None:
    data = body.encode()
    client.fake.topic("t", message_bytes_max=len(data) + 1000)
    tracemalloc.start()
    try:
        response = await client.post(data, content_type=content_type)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status == status, response.body
    assert peak < 8 * len(data) + 8 * MIB


async def test_a_bad_line_is_named_far_into_a_body(client: Client) -> None:
    lines = ['{"value": 1}'] * 20_000 + ['{"value": 1, "encoding": "text"}']
    answer = await client.post("\n".join(lines), content_type=NDJSON_TYPE)
    assert "record 20000" in problem(answer, 400)
    lines[15_000] = "{"
    answer = await client.post("\n".join(lines), content_type=NDJSON_TYPE)
    assert "Line 15001" in problem(answer, 400)
    assert not client.fake.logs


async def test_each_record_of_a_batch_has_its_outcome(client: Client) -> None:
    client.fake.refusals = [None, Refused(Reason.NOT_ENOUGH_REPLICAS, "too few")]
    records = [{"partition": 0, "value": 1}, {"partition": 1, "value": 2}]
    response = await client.post({"records": records}, "wide")
    assert response.status == 207
    good, bad = response.json()["results"]
    assert good == {"partition": 0, "offset": 0}
    assert bad["error"]["reason"] == "not_enough_replicas"
    assert bad["error"]["status"] == 503


async def test_each_batch_of_a_partition_has_its_outcome(client: Client) -> None:
    client.fake.topic("small", message_bytes_max=1000)
    body = {"records": [{"value": "x" * 300} for _ in range(7)]}
    client.fake.refusals = [None, Refused(Reason.REQUEST_TIMED_OUT, "lost")]
    response = await client.post(body, "small")
    assert response.status == 207
    results = response.json()["results"]
    assert [each.get("offset") for each in results] == [0, 1, None, None, None, None, None]
    statuses = [each["error"]["status"] for each in results[2:]]
    assert statuses == [504, 504, 503, 503, 503]
    assert len(rows(client, "small")) == 2


async def test_a_request_that_may_have_been_written_is_not_called_refused(client: Client) -> None:
    client.fake.refusals = [
        Refused(Reason.THROTTLED, "too much"),
        Refused(Reason.REQUEST_TIMED_OUT, "lost"),
    ]
    records = [{"partition": 0, "value": 1}, {"partition": 1, "value": 2}]
    assert problem(await client.post({"records": records}, "wide"), 504) == "Lost."


async def test_a_request_that_fails_as_a_whole_is_one_problem(client: Client) -> None:
    client.fake.refusals = [Refused(Reason.THROTTLED, "too much")]
    response = await client.post({"records": [{"value": 1}, {"value": 2}]})
    assert problem(response, 429) == "Too much."
    assert response.headers["retry-after"] == "1"
    assert problem(await client.post({"records": [{"value": 1}]}, "missing"), 404)


async def test_a_topic_that_was_made_again_is_found_again(client: Client) -> None:
    await client.post({"records": [{"value": 1}]})
    client.fake.refusals = [Refused(Reason.UNKNOWN_TOPIC_ID, "gone")]
    assert (await client.post({"records": [{"value": 2}]})).status == 200


# Other forms


async def test_lines_are_records_or_values(client: Client) -> None:
    lines = '{"key": "a", "value": {"n": 1}}\n\n{"value": "two"}\n'
    assert (await client.post(lines, content_type="application/x-ndjson")).status == 200
    target = "/v1/topics/t/records?lines=values&partition=0"
    ndjson = {"content-type": "application/x-ndjson"}
    answer = await client.ask("POST", target, '{"n": 3}\n"four"\r\n5\n', ndjson)
    assert answer.status == 200
    assert rows(client) == [
        (b"a", b'{"n":1}'),
        (None, b'"two"'),
        (None, b'{"n":3}'),
        (None, b'"four"'),
        (None, b"5"),
    ]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"value": 1}\n{"value": \n', "Line 2"),
        ('{"value": 1}\n\n{"x": 1}', "Line 3"),
        ("\n\n", "no records"),
        (b'{"value": 1}\n{"value": "\xff"}', "Line 2 of the body is not UTF-8"),
    ],
)
async def test_a_bad_line_is_named(client: Client, body: str, says: str) -> None:
    answer = await client.post(body, content_type="application/x-ndjson")
    assert says in problem(answer, 400)
    assert not client.fake.logs


async def test_a_body_can_be_the_value_itself(client: Client) -> None:
    binary = {"content-type": "application/octet-stream"}
    target = "/v1/topics/t/records?key=k&timestamp=9&header=a:b&header=c:d:e&partition=0"
    assert (await client.ask("POST", target, b"\x00\xff", binary)).status == 200
    text = {"content-type": "text/plain; charset=utf-8", "penstock-text": "yes"}
    assert (await client.ask("POST", "/v1/topics/t/records", "hé", text)).status == 200
    first, second = client.fake.records("t")
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"\x00\xff", 9)
    assert first.headers == (("a", b"b"), ("c", b"d:e"))
    assert second.value == "hé".encode()


@pytest.mark.parametrize("query", ["key=a", "partition=0", "lines=values", "timestamp=1"])
async def test_parameters_that_would_be_ignored_are_refused(client: Client, query: str) -> None:
    answer = await client.ask(
        "POST",
        f"/v1/topics/t/records?{query}",
        {"records": [{"value": 1}]},
        {"content-type": "application/json"},
    )
    assert "can't be used with records in JSON" in problem(answer, 400)


# Idempotency


async def test_a_repeated_request_with_a_key_writes_once(client: Client) -> None:
    body = {"records": [{"value": 1}, {"value": 2}]}
    first = await client.post(body, "wide", idempotency_key="order-7")
    again = await client.post(body, "wide", idempotency_key="order-7")
    assert first.json() == again.json()
    written = sum(len(rows(client, "wide", partition)) for partition in range(4))
    assert written == 2
    assert problem(await client.post(body, idempotency_key="k" * 256), 400)
    other = {"records": [{"value": 1}]}
    assert problem(await client.post(other, "wide", idempotency_key="order-7"), 409)


async def test_a_key_is_refused_with_other_records_of_another_partition(client: Client) -> None:
    records = [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]
    body = {"records": records}
    assert (await client.post(body, "wide", idempotency_key="k")).status == 200
    body = {"records": [*records, {"value": 3, "partition": 1}]}
    answer = await client.post(body, "wide", idempotency_key="k")
    assert "was used for other records" in problem(answer, 409)


# CloudEvents


async def test_events_become_records_of_kafkas_binding(client: Client) -> None:
    event = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0", "data": {"a": 1}}
    structured = "application/cloudevents+json"
    keyed = {**event, "partitionkey": "pk"}
    assert (await client.post(keyed, content_type=structured)).status == 200
    batch = json.dumps([event, keyed])
    kind = "application/cloudevents-batch+json"
    assert (await client.post(batch, content_type=kind)).status == 200
    attributes = {"ce-id": "2", "ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}
    headers = {**attributes, "content-type": "application/json", "ce-partitionkey": "p%20q"}
    answer = await client.ask("POST", "/v1/topics/t/records", b'{"b": 2}', headers)
    assert answer.status == 200
    first, second, _, fourth = client.fake.records("t")
    assert json.loads(first.value or b"") == keyed
    assert first.headers == (("content-type", b"application/cloudevents+json; charset=UTF-8"),)
    assert (first.key, second.key) == (b"pk", None)
    assert (fourth.key, fourth.value) == (b"p q", b'{"b": 2}')
    found = dict(fourth.headers)
    assert found["ce_id"] == b"2"
    assert found["content-type"] == b"application/json"


async def test_an_event_without_what_it_needs_is_refused(client: Client) -> None:
    kind = "application/cloudevents+json"
    assert "`source`" in problem(await client.post('{"id": "1"}', content_type=kind), 400)
    event = '{"id": "1", "source": "s", "type": "t", "specversion": "0.3"}'
    assert "specversion" in problem(await client.post(event, content_type=kind), 400)
    batch = "application/cloudevents-batch+json"
    assert "CloudEvent 0" in problem(await client.post(f"[{event}]", content_type=batch), 400)
    headers = {"content-type": "image/png", "ce-specversion": "1.0", "ce-id": "1"}
    answer = await client.ask("POST", "/v1/topics/t/records", b"", headers)
    assert "ce-source" in problem(answer, 400)
    assert not client.fake.logs


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_records_without_a_trace_get_that_of_the_request(client: Client) -> None:
    own = {"traceparent": TRACE.replace("0af7", "1111")}
    records = [{"value": 1}, {"value": 2, "headers": own}, {"value": 3, "headers": {"a": "b"}}]
    given = {"traceparent": TRACE, "tracestate": "vendor=1"}
    assert (await client.post({"records": records}, **given)).status == 200
    state = ("tracestate", b"vendor=1")
    assert [record.headers for record in client.fake.records("t", 0)] == [
        (("traceparent", TRACE.encode()), state),
        (("traceparent", own["traceparent"].encode()),),
        (("a", b"b"), ("traceparent", TRACE.encode()), state),
    ]


async def test_a_retry_under_another_trace_has_records_of_the_same_size(client: Client) -> None:
    body = {"records": [{"value": 1}]}
    given = {"traceparent": TRACE, "tracestate": "vendor=1", "idempotency_key": "k"}
    assert (await client.post(body, **given)).status == 200
    (record,) = client.fake.records("t", 0)
    assert record.headers == (("traceparent", TRACE.encode()),)


@pytest.mark.parametrize("trace", ["", "00-xyz", TRACE + "-more", "\xff"])
async def test_a_trace_that_is_none_is_no_reason_to_refuse(client: Client, trace: str) -> None:
    assert (await client.post({"records": [{"value": 1}]}, traceparent=trace)).status == 200
    assert [record.headers for record in client.fake.records("t", 0)] == [()]
