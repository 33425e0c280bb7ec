"""Proves that all nodes are one registry, while many register at once and leaders die."""

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.testing import ProcessCluster
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(180)]

Make = Callable[..., ProcessCluster]

WAIT_S = 60.0


def schema_of(number: int) -> str:
    fields = [{"name": f"f{number}", "type": "int"}]
    return json.dumps({"type": "record", "name": f"R{number}", "fields": fields})


class Registrar(threading.Thread):
    """Registers the same schemas as others do, in its own order, until it is stopped."""

    def __init__(self, base: str, step: int) -> None:
        super().__init__()
        self.base = base
        self.step = step
        self.stopping = threading.Event()
        # What was acknowledged: the id of each schema under each subject.
        self.found: dict[tuple[str, int], int] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.base, timeout=WAIT_S) as client:
            for turn in itertools.count():
                if self.stopping.is_set():
                    return
                number = turn * self.step % 1_009
                subject = f"subject-{number % 7}"
                answer = client.post(
                    f"/subjects/{subject}-{number}/versions", json={"schema": schema_of(number)}
                )
                if answer.status_code == 200:
                    self.found[f"{subject}-{number}", number] = answer.json()["id"]
                else:
                    # It says so that nobody knows; the next one finds out.
                    assert answer.status_code in (500, 503, 504), answer.text
                    assert answer.json()["error_code"] in (50001, 50002), answer.text
                    self.refused.append(answer.text)


def test_ids_are_one_for_all_nodes_however_many_register_and_whoever_dies(
    penstock_cluster: Make,
) -> None:
    cluster = penstock_cluster(nodes=3)
    urls = {number: f"http://{node.http}" for number, node in cluster.nodes.items()}
    first = httpx.post(
        f"{urls[1]}/subjects/first/versions", json={"schema": '"int"'}, timeout=WAIT_S
    )
    assert first.json()["id"] == 1
    # Another node knows it at once.
    for url in urls.values():
        latest = httpx.get(f"{url}/subjects/first/versions/latest", timeout=WAIT_S)
        assert (latest.status_code, latest.json()["id"]) == (200, 1)
    victim = cluster.leader("_schemas").number
    others = [number for number in cluster.nodes if number != victim]
    # Steps that are prime to the number of schemas: each goes through all, in another order.
    steps = {others[0]: (1, 2), others[1]: (3, 5)}
    running = [Registrar(urls[node], step) for node, each in steps.items() for step in each]
    for each in running:
        each.start()

    def await_progress(more: int) -> None:
        wanted = [len(each.found) + more for each in running]
        wait_until(
            "all register",
            lambda: all(
                len(each.found) >= min(count, 1_009)
                for each, count in zip(running, wanted, strict=True)
            ),
            timeout_s=WAIT_S,
        )

    await_progress(40)
    cluster.nodes[victim].kill()
    await_progress(40)
    cluster.nodes[victim].start()
    cluster.await_in_sync()
    await_progress(20)
    for each in running:
        each.stopping.set()
    for each in running:
        each.join(WAIT_S)
        assert not each.is_alive()
    refused = [text for each in running for text in each.refused]
    assert len(refused) < 10, refused
    acknowledged: dict[tuple[str, int], int] = {}
    for each in running:
        for place, found in each.found.items():
            assert acknowledged.setdefault(place, found) == found
    # No id stands for two schemas, and every node says the same.
    assert len(set(acknowledged.values())) == len(acknowledged)
    shown: list[Any] = []
    for url in urls.values():
        with httpx.Client(base_url=url, timeout=WAIT_S) as client:
            shown.append(client.get("/schemas").json())
    assert shown[0] == shown[1] == shown[2]
    stored = {(each["subject"], each["id"]): each["schema"] for each in shown[0]}
    for (subject, number), found in acknowledged.items():
        assert json.loads(stored[subject, found]) == json.loads(schema_of(number))
