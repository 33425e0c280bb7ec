"""Proves what an Arrow stream holds, that it is bounded, and that one that is cut is not whole."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.broker.doors import calls
from penstock.columns.layout import COLUMNS
from penstock.frontdoor.http import arrow
from penstock.frontdoor.http.limits import ARROW_STREAMS_MAX
from penstock.model.errors import Reason, Refused
from tests.unit.frontdoor.http.client import Client, Response

ACCEPT = {"accept": arrow.ARROW_TYPE}
PATH = "/v1/topics/t/records"


async def filled() -> Client:
    made = Client()
    made.fake.topic("t", partitions=2)
    for number in range(10):
        record = {
            "value": number,
            "key": f"k{number}",
            "partition": number % 2,
            "timestamp": number,
        }
        assert (await made.post({"records": [record]})).status == 200
    return made


async def ask(client: Client, query: str = "") -> Response:
    return await client.ask("GET", PATH + query, headers=ACCEPT)


def table(response: Response) -> Any:
    assert (response.status, response.headers["content-type"]) == (200, arrow.ARROW_TYPE)
    return pa.ipc.open_stream(response.body).read_all()


def values(found: Any) -> list[int]:
    return [int(value) for value in found["value"].to_pylist()]


async def test_all_partitions_come_with_all_columns() -> None:
    client = await filled()
    found = table(await ask(client))
    assert tuple(found.schema.names) == COLUMNS
    assert values(found) == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    assert found["partition"].to_pylist() == [0] * 5 + [1] * 5
    assert found["offset"].to_pylist() == [*range(5), *range(5)]
    assert set(found["topic"].to_pylist()) == {"t"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?partition=1", [1, 3, 5, 7, 9]),
        ("?partition=1&offset=3", [7, 9]),
        ("?partition=1&offset=5", []),
        ("?partition=0&limit=2", [0, 2]),
        ("?limit=7", [0, 2, 4, 6, 8, 1, 3]),
        ("?timestamp=6", [6, 8, 7, 9]),
        ("?offset=latest", []),
    ],
)
async def test_a_range(query: str, expected: list[int]) -> None:
    client = await filled()
    assert values(table(await ask(client, query))) == expected


async def test_columns_are_chosen() -> None:
    client = await filled()
    found = table(await ask(client, "?columns=offset,value&partition=0"))
    assert found.schema.names == ["offset", "value"]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("?columns=prize", 400, "There is no column 'prize'"),
        ("?offset=0", 400, "Topic t has 2 partitions"),
        ("?partition=9", 404, "has no partition 9"),
        ("?partition=0&offset=99", 416, "Partition 0 has offsets from 0 to 5, so not 99."),
        ("?limit=0", 400, "must be from 1"),
    ],
)
async def test_wrong_questions_get_a_problem(query: str, status: int, said: str) -> None:
    client = await filled()
    response = await ask(client, query)
    assert response.status == status
    assert said in response.json()["detail"]
    assert client.context.arrow_streams == 0


async def test_columns_are_for_arrow_alone() -> None:
    client = await filled()
    response = await client.ask("GET", PATH + "?partition=0&columns=value")
    assert (response.status, response.json()["status"]) == (400, 400)


async def test_a_node_without_the_extra_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    client = await filled()
    monkeypatch.setattr(arrow, "find_spec", lambda name: None)
    response = await ask(client)
    assert (response.status, response.json()["reason"]) == (406, "not_acceptable")
    assert "pip install 'penstock-mq[arrow]'" in response.json()["detail"]


async def test_too_many_streams_are_refused() -> None:
    client = await filled()
    client.context.arrow_streams = ARROW_STREAMS_MAX
    assert (await ask(client)).status == 503
    client.context.arrow_streams -= 1
    assert (await ask(client)).status == 200
    assert client.context.arrow_streams == ARROW_STREAMS_MAX - 1


async def test_a_head_is_all_that_a_head_request_gets() -> None:
    client = await filled()
    response = await client.ask("HEAD", PATH, headers=ACCEPT)
    assert (response.status, response.body) == (200, b"")
    assert client.context.arrow_streams == 0


async def test_a_stream_that_can_not_go_on_is_cut_and_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second partition is lost on the way: what a reader has must not look whole."""
    client = await filled()
    read = client.fake._read

    async def refuse(call: calls.Read) -> calls.Batches:
        if call.partition == 1:
            raise Refused(Reason.REQUEST_TIMED_OUT, "nobody leads it")
        return await read(call)

    monkeypatch.setattr(client.fake, "_read", refuse)
    response = await ask(client)
    assert response.status == 200
    assert not response.body.endswith(arrow._END)
    assert client.context.arrow_streams == 0
