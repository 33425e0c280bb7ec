"""Proves that a consumer serves one poll at a time."""

import asyncio

from penstock.broker.doors import calls
from tests.unit.frontdoor.http.client import JSON, Client
from tests.unit.frontdoor.remote.test_consuming import Group


async def test_of_two_polls_at_the_same_time_one_is_refused() -> None:
    client = Client()
    client.fake.topic("t", partitions=2)
    Group(client.fake)
    client.fake.answers["DescribeNode"] = lambda _: calls.Status(node=1, unready="")
    made = await client.ask("POST", "/v1/groups/g/consumers", {"topics": ["t"]}, JSON)
    target = f"/v1/groups/g/consumers/{made.json()['consumer']}"
    waiting, refused = (
        client.open("POST", f"{target}/poll", {"wait_ms": 30_000}, JSON) for _ in range(2)
    )
    await asyncio.wait_for(refused.task, 30)
    assert (refused.response.status, refused.response.json()["reason"]) == (409, "busy")
    await client.post({"records": [{"value": "a"}]})
    await asyncio.wait_for(waiting.task, 30)
    assert len(waiting.response.json()["partitions"]) == 1
    assert (await client.ask("POST", f"{target}/poll", {}, JSON)).status == 200
    assert client.context.consumers is not None
    await client.context.consumers.close_all()
