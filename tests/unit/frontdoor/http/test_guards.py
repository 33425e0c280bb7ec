"""Proves that web pages of others reach nothing, and that wrong requests are refused precisely."""

import asyncio
from uuid import UUID

import pytest

from penstock.broker.doors.queue_calls import Polled
from tests.unit.frontdoor.http.client import JSON, Client, Response

RECORD = '{"records": [{"value": 1}]}'


def client_with(*hosts: str) -> Client:
    client = Client(hosts)
    client.fake.topic("t")
    return client


async def asked(client: Client, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.ask("POST", "/v1/topics/t/records", RECORD, {**JSON, **named})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9094",
        "127.0.0.1:1",
        "10.1.2.3",
        "[::1]:9094",
        "app.localhost",
        "broker-1",
    ],
)
async def test_known_names_and_addresses_are_served(host: str) -> None:
    assert (await asked(client_with("broker-1"), host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b", "@x"]
)
async def test_other_names_are_refused(host: str) -> None:
    client = client_with()
    answer = await asked(client, host=host)
    assert (answer.status, answer.json()["reason"]) == (421, "unknown_host")
    assert not client.fake.asked


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:9094", ""]
)
async def test_pages_of_other_origins_are_refused(origin: str) -> None:
    client = client_with()
    answer = await asked(client, origin=origin)
    assert (answer.status, answer.json()["reason"]) == (403, "foreign_origin")
    assert not client.fake.asked


async def test_pages_of_this_door_are_served_and_no_origin_is_allowed() -> None:
    client = client_with()
    answer = await asked(client, origin="http://localhost:9094", host="localhost:9094")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = await client.ask("OPTIONS", "/v1/topics/t/records")
    assert preflight.status == 405


async def test_a_picture_in_a_foreign_page_reads_nothing() -> None:
    client = client_with()
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert (await client.ask("GET", "/v1/topics", headers=headers)).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_foreign_page_may_link_to_what_only_shows(site: str) -> None:
    client = client_with()
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert (await client.ask("GET", "/v1/topics/t/records", headers=link)).status == 200
    answer = await asked(client, **{"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
    assert (answer.status, answer.json()["reason"]) == (403, "foreign")
    assert not client.fake.records("t")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
@pytest.mark.parametrize("mode", ["navigate", "no-cors", "cors"])
async def test_a_stream_that_leases_is_not_even_linked_to(site: str, mode: str) -> None:
    client = client_with()
    client.fake.answers["PollQueue"] = lambda _: Polled(topic_id=UUID(int=0), lease_ms=1, parts=[])
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode}
    stream = client.open("GET", "/v1/queues/t/g/events", headers=headers)
    if site in ("same-origin", "none"):
        await stream.until(b": following")
        await stream.leave()
        assert stream.response.status == 200
        return
    await asyncio.wait_for(stream.task, 30)
    assert (stream.response.status, stream.response.json()["reason"]) == (403, "foreign")
    assert not client.fake.asked


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
async def test_what_a_form_can_send_changes_nothing(content_type: str) -> None:
    client = client_with()
    answer = await asked(client, content_type=content_type)
    assert (answer.status, answer.json()["reason"]) == (415, "wrong_content_type")
    assert not client.fake.asked


@pytest.mark.parametrize(
    ("method", "target", "status", "says"),
    [
        ("GET", "/", 404, "/docs"),
        ("GET", "/v1/topics/", 404, "/docs"),
        ("GET", "/v1/topics//records", 404, "/docs"),
        ("GET", "/v1/topics/t/records/x", 404, "/docs"),
        ("DELETE", "/v1/topics/t/records", 405, "only GET, POST"),
        ("GET", "/v1/topics/t/records?ofset=1", 400, "no parameter 'ofset'"),
        ("GET", "/v1/topics/t/records?offset=x", 400, "whole number"),
        ("GET", "/v1/topics/t/records?offset=1&offset=2", 400, "more than once"),
        ("GET", "/v1/topics/t/records?offset=1&timestamp=2", 400, "not both"),
        ("GET", "/v1/topics/t/records?limit=0", 400, "from 1 to"),
        ("GET", "/v1/topics/t/records?partition=9", 404, "no partition 9"),
        ("GET", "/v1/topics/t/records?encoding=xml", 400, "one of auto"),
        ("GET", "/v1/topics/t/records?wait_ms=99999999", 400, "from 0 to"),
        ("GET", "/v1/topics/{}/records", 404, "There is no {}."),
        ("GET", "/v1/topics/%ff/records", 400, "UTF-8"),
        ("GET", "/v1/topics/t/records?key=%ff", 400, "query"),
        ("GET", "/v1/nodes/x/settings", 404, "no node"),
    ],
)
async def test_wrong_requests_are_problems(
    method: str, target: str, status: int, says: str
) -> None:
    answer = await client_with().ask(method, target)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.json()["detail"]


async def test_a_digit_of_another_script_is_no_schema_id() -> None:
    answer = await client_with().ask("GET", "/schemas/ids/%C2%B2")
    assert (answer.status, answer.json()["error_code"]) == (404, 40403)


async def test_a_bug_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    client = client_with()
    # There is no answer for this call, which is a KeyError.
    answer = await client.ask("GET", "/v1/topics")
    assert answer.status == 500
    assert b"KeyError" not in answer.body
    assert "KeyError" in caplog.text


async def test_a_large_body_is_refused_before_it_comes() -> None:
    answer = await asked(client_with(), content_length=str(10**9))
    assert (answer.status, answer.json()["reason"]) == (413, "body_too_large")


async def test_bodies_of_all_requests_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.frontdoor.http.context.BODIES_BYTES_MAX", 10)
    client = client_with()
    answer = await asked(client)
    assert (answer.status, answer.json()["reason"]) == (503, "busy")
    assert client.context.bodies_bytes == 0
