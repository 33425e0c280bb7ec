"""Proves how many messages a stream of a queue has out: what is settled or over makes room."""

import asyncio
import json

import pytest

from tests.unit.frontdoor.http.client import JSON, Client, Opened, Response
from tests.unit.frontdoor.remote.fake_queue import FakeQueue

QUEUE = "/v1/queues/t/g"


class Rig:
    def __init__(self) -> None:
        self.client = Client()
        self.queue = FakeQueue(self.client.fake)

    async def follow(self) -> Opened:
        """One message at a time."""
        await self.queue.send(b"1", b"2")
        stream = self.client.open("GET", f"{QUEUE}/events?limit=1")
        await stream.until(b'"value":1')
        return stream

    async def settle(self, verb: str, stream: Opened) -> Response:
        lines = stream.response.body.splitlines()
        (data,) = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
        body = {"tokens": [json.loads(data)["token"]]}
        return await self.client.ask("POST", f"{QUEUE}/{verb}", body, JSON)


async def test_a_lease_that_begins_again_has_the_time_of_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.frontdoor.http.queue_events.STREAM_BEAT_S", 0.0)
    rig = Rig()
    stream = await rig.follow()
    rig.queue.lease_ms = 1
    answer = await rig.settle("extend", stream)
    assert [each["lease_ms"] for each in answer.json()["results"]] == [1]
    # It ran out, so there is room for the next.
    await stream.until(b'"value":2')
    await stream.leave()


@pytest.mark.parametrize("outcome", ["unknown", "forbidden", "unavailable"])
async def test_a_message_is_out_until_its_lease_is_over(outcome: str) -> None:
    rig = Rig()
    stream = await rig.follow()
    rig.queue.outcome = outcome
    answer = await rig.settle("ack", stream)
    assert answer.json()["reason"] == f"lease_{outcome}"
    assert "lease_ms" not in answer.json()["results"][0]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(rig.queue.polls) == 1
    rig.queue.outcome = "ok"
    assert (await rig.settle("ack", stream)).status == 200
    await stream.until(b'"value":2')
    await stream.leave()


@pytest.mark.parametrize("outcome", ["expired", "done"])
async def test_a_lease_that_is_over_makes_room(outcome: str) -> None:
    rig = Rig()
    stream = await rig.follow()
    rig.queue.outcome = outcome
    assert (await rig.settle("extend", stream)).status == 409
    await stream.until(b'"value":2')
    await stream.leave()
