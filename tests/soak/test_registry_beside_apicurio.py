"""Compares the registry with Apicurio's, which serves Confluent's API too."""

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.apicurio import apicurio, missing
from tests.e2e.processes import Broker
from tests.soak.conftest import Tell
from tests.soak.registry_requests import conversation

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

# The first ones of a JVM are slow; the median is not of them.
LOOK_UPS = 2_000
# By the beginning of a request's name: what is different on purpose, and why.
DIFFERENCES = {
    "default level": "Confluent's level is BACKWARD; Apicurio has none until it is set",
    "json-into-one-of BACKWARD": "one of two alternatives is what it was before",
    "protobuf-added": "new fields are read over by old readers, as Confluent says",
    "protobuf-removed": "and so are those that a new reader does not know",
    "protobuf-renamed": "names are not on the wire",
    "protobuf-widened": "int32 and int64 are the same on the wire",
    "protobuf-text-bytes": "string and bytes are the same on the wire",
    "protobuf-message-removed FULL": "what BACKWARD refuses, FULL does too",
    "protobuf-message-added FULL": "what FORWARD refuses, FULL does too",
    "invalid protobuf-type": "Apicurio takes types that are not defined",
    "life version 0": "Confluent: 42202 for what can't be a version",
    "life version x": "Confluent: 42202 for what can't be a version",
    "life version 2147483648": "Confluent: 42202 for what can't be a version",
    "delete bad version": "Confluent: 42202 for what can't be a version",
    "id schema missing": "Apicurio has no such path",
    "id not a number": "Apicurio has no code for it",
    "hard first": "Confluent's status is 404",
    "soft again": "Confluent's status is 404",
    "subject hard first": "Confluent's status is 404",
    "soft version deleted": "a deleted version says that it is",
    "check missing": "Confluent: 40401 for a subject that is not there",
    "check all missing": "Confluent: what is first is compatible with all",
    "config SOME": "Confluent: 42203",
    "subject config missing": "Confluent: 40408",
    "subject config default": "Confluent: the global level, also for an unknown subject",
    "subject config deleted": "Confluent: 40408",
    "subject config delete again": "Confluent: 40401",
    "mode": "Apicurio has no modes",
    "contexts": "Confluent names the default context '.'",
}


@pytest.fixture
def other() -> Iterator[str]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    with apicurio() as base:
        yield base


def comparable(answer: httpx.Response) -> tuple[int, Any]:
    """Without words, ids and the form of schemas; what one may leave out is left out."""
    try:
        body = answer.json()
    except ValueError:
        return answer.status_code, None
    path = answer.request.url.path
    if isinstance(body, list) and path.endswith("/referencedby"):
        return answer.status_code, len(body)
    if not isinstance(body, dict):
        return answer.status_code, body
    kept = {"error_code", "subject", "version", "schemaType", "is_compatible"}
    kept |= {"compatibility", "compatibilityLevel", "mode", "deleted"}
    found = {key: value for key, value in body.items() if key in kept}
    if answer.request.method == "POST" and "/subjects/" in path and path.endswith("/versions"):
        found.pop("version", None)
    if body.get("references"):
        found["references"] = body["references"]
    if "schema" in body:
        try:
            found["schema"] = json.loads(body["schema"])
        except ValueError:
            found["schema"] = body["schema"].split()
    return answer.status_code, found


def test_the_same_requests_get_the_same_answers(tmp_path: Path, other: str, tell: Tell) -> None:
    broker = Broker(tmp_path / "data").start()
    try:
        _compare(f"http://{broker.http}", other, tell)
    finally:
        broker.close()


def _compare(penstock: str, other: str, tell: Tell) -> None:
    asked, different, unexpected = 0, set(), []
    with (
        httpx.Client(base_url=penstock, timeout=60) as ours,
        httpx.Client(base_url=other, timeout=60) as theirs,
    ):
        for each in conversation():
            asked += 1
            found = [
                comparable(client.request(each.method, each.path, json=each.body))
                for client in (ours, theirs)
            ]
            if found[0] == found[1]:
                continue
            known = [start for start in DIFFERENCES if each.name.startswith(start)]
            different.update(known)
            if not known:
                unexpected.append((each.name, *found))
        medians = [_look_up_ms(client) for client in (ours, theirs)]
    tell(
        f"{asked} requests, {len(different)} known differences; "
        f"a look-up by id takes {medians[0]:.2f} ms, and {medians[1]:.2f} ms there"
    )
    assert unexpected == []
    # A difference that is gone must leave the list.
    assert different == set(DIFFERENCES)
    assert medians[0] <= medians[1]


def _look_up_ms(client: httpx.Client) -> float:
    found = client.get("/subjects/avro-same/versions/latest").json()["id"]
    took = []
    for _ in range(LOOK_UPS):
        started = time.monotonic()
        assert client.get(f"/schemas/ids/{found}").status_code == 200
        took.append(1_000 * (time.monotonic() - started))
    return statistics.median(took)
