"""Proves how records are shown, and that streams follow, resume and end."""

import asyncio
import json

import pytest

from tests.unit.frontdoor.http.client import Client


async def filled(*records: dict[str, object], partitions: int = 1) -> Client:
    client = Client()
    client.fake.topic("t", partitions=partitions)
    if records:
        assert (await client.post({"records": list(records)})).status == 200
    return client


async def test_values_are_shown_as_the_first_form_that_fits() -> None:
    client = await filled(
        {"value": {"a": 1}},
        {"value": "plain", "encoding": "text"},
        {"value": "/w==", "encoding": "base64", "key": "/w==", "key_encoding": "base64"},
        {"value": None, "key": "k"},
        {"value": "null", "encoding": "text"},
        {"value": '{"a":\n 1}', "encoding": "text", "headers": {"h": "v"}},
    )
    answer = (await client.ask("GET", "/v1/topics/t/records")).json()
    shown = [(each["value"], each["encoding"]) for each in answer["records"]]
    assert shown == [
        ({"a": 1}, "json"),
        ("plain", "text"),
        ("/w==", "base64"),
        (None, "json"),
        ("null", "text"),
        ('{"a":\n 1}', "text"),
    ]
    assert [each["key"] for each in answer["records"]][2:4] == ["/w==", "k"]
    assert (answer["next_offset"], answer["high_watermark"]) == (6, 6)


async def test_what_was_read_can_be_written_again() -> None:
    client = await filled(
        {"value": {"a": 1}, "key": "k", "headers": {"h": "v"}},
        {"value": "/w==", "encoding": "base64"},
        {"value": None},
        {"value": "null", "encoding": "text"},
    )
    found = (await client.ask("GET", "/v1/topics/t/records")).json()["records"]
    client.fake.topic("copy")
    for record in found:
        del record["offset"], record["partition"]
    assert (await client.post({"records": found}, "copy")).status == 200
    before, after = client.fake.records("t"), client.fake.records("copy")
    assert [(one.key, one.value, one.headers) for one in before] == [
        (one.key, one.value, one.headers) for one in after
    ]


async def test_a_range_by_offset_time_and_word() -> None:
    client = await filled(*({"value": each, "timestamp": 1000 + each} for each in range(10)))

    async def offsets(query: str) -> list[int]:
        answer = (await client.ask("GET", f"/v1/topics/t/records?{query}")).json()
        return [each["offset"] for each in answer["records"]]

    assert await offsets("partition=0&offset=4&limit=3") == [4, 5, 6]
    assert await offsets("timestamp=1008") == [8, 9]
    assert await offsets("timestamp=99999") == []
    assert await offsets("offset=earliest&limit=1") == [0]
    assert await offsets("offset=latest") == []


async def test_other_forms_of_the_answer() -> None:
    client = await filled({"value": 1}, {"value": 2}, {"value": 3})
    lines = await client.ask(
        "GET", "/v1/topics/t/records?limit=2", headers={"accept": "application/x-ndjson"}
    )
    assert [json.loads(line)["value"] for line in lines.body.splitlines()] == [1, 2]
    assert lines.headers["penstock-next-offset"] == "2"
    binary = {"accept": "application/octet-stream"}
    one = await client.ask("GET", "/v1/topics/t/records?limit=1&offset=2", headers=binary)
    assert (one.body, one.headers["penstock-offset"]) == (b"3", "2")
    none = await client.ask("GET", "/v1/topics/t/records?limit=1&offset=3", headers=binary)
    assert none.status == 204
    assert (await client.ask("GET", "/v1/topics/t/records", headers=binary)).status == 400
    image = {"accept": "image/png"}
    assert (await client.ask("GET", "/v1/topics/t/records", headers=image)).status == 406


async def test_a_partition_must_be_named_where_there_are_several() -> None:
    client = await filled(partitions=3)
    answer = await client.ask("GET", "/v1/topics/t/records")
    assert "say which" in answer.json()["detail"]


async def test_a_read_waits_and_is_taken_back_when_its_client_leaves() -> None:
    client = await filled()
    waiting = client.open("GET", "/v1/topics/t/records?wait_ms=30000")
    await asyncio.sleep(0.01)
    await client.post({"records": [{"value": 1}]})
    await asyncio.wait_for(waiting.task, 30)
    assert len(waiting.response.json()["records"]) == 1
    leaving = client.open("GET", "/v1/topics/t/records?wait_ms=30000&offset=1")
    await asyncio.sleep(0.01)
    await leaving.leave()
    assert leaving.response.status == 0
    assert not client.context.reader._reading


# Streams


async def test_a_stream_shows_what_comes_and_resumes_behind_its_last_event() -> None:
    client = await filled(partitions=2)
    stream = client.open("GET", "/v1/topics/t/events")
    await stream.until(b": following")
    assert stream.response.headers["content-type"] == "text/event-stream"
    await client.post({"records": [{"value": "a", "partition": 0}]})
    await stream.until(b'"value":"a"')
    await client.post({"records": [{"value": "b", "partition": 1}]})
    await stream.until(b'"value":"b"')
    assert b"id: 0:1,1:1\n" in stream.response.body
    await client.post({"records": [{"value": "c", "partition": 1}]})
    await stream.until(b'"value":"c"')
    await stream.leave()
    assert client.context.streams == 0
    assert not client.context.reader._reading
    resumed = client.open("GET", "/v1/topics/t/events", headers={"last-event-id": "0:1,1:1"})
    await resumed.until(b'"value":"c"')
    assert resumed.response.body.count(b"event: record") == 1
    await resumed.leave()


async def test_a_reader_that_got_no_event_resumes_without_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = await filled({"value": "old"})
    stream = client.open("GET", "/v1/topics/t/events")
    await stream.until(b": following\nid: 0:1\n\n")
    await stream.leave()
    await client.post({"records": [{"value": "missed"}]})
    resumed = client.open("GET", "/v1/topics/t/events", headers={"last-event-id": "0:1"})
    await resumed.until(b'"value":"missed"')
    await resumed.leave()
    monkeypatch.setattr("penstock.frontdoor.http.events.STREAM_BEAT_S", 0.0)
    idle = client.open("GET", "/v1/topics/t/events")
    await idle.until(b": beat\nid: 0:2\n\n")
    await idle.leave()


async def test_partitions_that_are_new_are_shown_from_their_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.frontdoor.http.events.STREAM_BEAT_S", 0.0)
    client = await filled({"value": "old"})
    running = client.open("GET", "/v1/topics/t/events")
    only = client.open("GET", "/v1/topics/t/events?partition=0")
    await running.until(b": following")
    client.fake.topic("t", partitions=2)
    client.context.topics.forget("t")
    await client.post({"records": [{"value": "new", "partition": 1}]})
    await running.until(b"id: 0:1,1:1\nevent: record\n")
    assert b'"value":"new"' in running.response.body
    resumed = client.open("GET", "/v1/topics/t/events", headers={"last-event-id": "0:1"})
    await resumed.until(b"id: 0:1,1:1\nevent: record\n")
    await client.post({"records": [{"value": "last", "partition": 0}]})
    await only.until(b'"value":"last"')
    assert b'"value":"new"' not in only.response.body
    for stream in (running, resumed, only):
        await stream.leave()


async def test_a_topic_that_outgrows_a_stream_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.frontdoor.http.events.STREAM_BEAT_S", 0.0)
    monkeypatch.setattr("penstock.frontdoor.http.events.STREAM_PARTITIONS_MAX", 1)
    client = await filled()
    stream = client.open("GET", "/v1/topics/t/events")
    await stream.until(b": following")
    client.fake.topic("t", partitions=2)
    client.context.topics.forget("t")
    await asyncio.wait_for(stream.task, 30)
    assert b"event: error" in stream.response.body
    assert b"say which" in stream.response.body
    assert client.context.streams == 0


async def test_a_reader_whose_records_were_trimmed_goes_on_at_the_first_one() -> None:
    client = await filled(*({"value": each} for each in range(3)))
    await client.post({"records": [{"value": "kept"}]})
    client.fake.starts[client.fake.topics["t"].topic_id, 0] = 3
    stream = client.open("GET", "/v1/topics/t/events", headers={"last-event-id": "0:1"})
    await stream.until(b'"value":"kept"')
    trimmed = b'id: 0:3\nevent: trimmed\ndata: {"partition":0,"offset":1,"next_offset":3}\n\n'
    assert trimmed in stream.response.body
    assert b"event: error" not in stream.response.body
    await stream.leave()


async def test_a_thousand_idle_readers_ask_once() -> None:
    client = await filled()
    streams = [client.open("GET", "/v1/topics/t/events") for _ in range(1000)]
    for stream in streams:
        await stream.until(b": following")
    await asyncio.sleep(0)
    reads = [each for each in client.fake.asked if type(each).__name__ == "Read"]
    assert len(reads) == 1
    await client.post({"records": [{"value": "news"}]})
    for stream in streams:
        await stream.until(b"news")
        await stream.leave()
    assert client.context.streams == 0


async def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.frontdoor.http.context.STREAMS_MAX", 1)
    client = await filled()
    first = client.open("GET", "/v1/topics/t/events")
    await first.until(b": following")
    assert (await client.ask("GET", "/v1/topics/t/events")).status == 503
    await first.leave()
    second = client.open("GET", "/v1/topics/t/events")
    await second.until(b": following")
    await second.leave()


async def test_a_stream_that_can_not_go_on_says_why() -> None:
    client = await filled({"value": 1})
    headers = {"last-event-id": "0:99"}
    stream = client.open("GET", "/v1/topics/t/events", headers=headers)
    await asyncio.wait_for(stream.task, 30)
    assert b"event: error" in stream.response.body
    assert b"offset_out_of_range" in stream.response.body
    assert client.context.streams == 0
    for bad in ("x", "0:", "0:1,", "0:-1", "1" * 60, f"0:{2**63}"):
        headers = {"last-event-id": bad}
        assert (await client.ask("GET", "/v1/topics/t/events", headers=headers)).status == 400
    assert (
        "9,223,372,036,854,775,807 is the last"
        in (await client.ask("GET", "/v1/topics/t/events", headers=headers)).json()["detail"]
    )


async def test_the_head_of_a_stream_is_answered_at_once() -> None:
    client = await filled({"value": 1})
    answer = await client.ask("HEAD", "/v1/topics/t/events")
    assert (answer.status, answer.body) == (200, b"")
    assert client.context.streams == 0
    assert (await client.ask("HEAD", "/v1/topics/t/records")).status == 200


async def test_what_waits_ends_when_the_process_is_to_end() -> None:
    client = await filled({"value": 1})
    stream = client.open("GET", "/v1/topics/t/events")
    waiting = client.open("GET", "/v1/topics/t/records?offset=1&wait_ms=30000")
    await stream.until(b": following")
    client.context.stopping.set()
    await asyncio.wait_for(asyncio.gather(stream.task, waiting.task), 30)
    assert waiting.response.json()["reason"] == "stopping"
    assert client.context.streams == 0


async def test_a_topic_that_is_missing_has_no_stream() -> None:
    client = await filled()
    assert (await client.ask("GET", "/v1/topics/other/events")).status == 404
