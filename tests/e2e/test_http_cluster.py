"""Proves that any node serves HTTP for all, and that a leader's death loses and doubles nothing."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import httpx
import pytest

from penstock.testing import ProcessCluster
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(180)]

Make = Callable[..., ProcessCluster]

WAIT_S = 60.0
TOPIC = "orders"
PARTITIONS = 3


def url(cluster: ProcessCluster, node: int) -> str:
    return f"http://{cluster.nodes[node].http}"


def all_values(cluster: ProcessCluster, node: int) -> Counter[str]:
    """Every record of the topic, as one node tells them."""
    found: Counter[str] = Counter()
    with httpx.Client(base_url=url(cluster, node), timeout=WAIT_S) as client:
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                target = f"/v1/topics/{TOPIC}/records?partition={partition}&offset={offset}"
                answer = client.get(f"{target}&limit=10000")
                assert answer.status_code == 200, answer.text
                page = answer.json()
                found.update(record["value"] for record in page["records"])
                offset = page["next_offset"]
                if offset >= page["high_watermark"]:
                    break
    return found


class Writer(threading.Thread):
    """Writes through one node until it is stopped; with keys it repeats what has no good answer."""

    def __init__(self, cluster: ProcessCluster, node: int, *, is_keyed: bool) -> None:
        super().__init__()
        self.base = url(cluster, node)
        self.is_keyed = is_keyed
        self.name = f"{node}-{'keyed' if is_keyed else 'plain'}"
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self.base, timeout=WAIT_S) as client:
            for number in itertools.count():
                if self.stopping.is_set():
                    return
                self._write(client, f"{self.name}-{number}")

    def _write(self, client: httpx.Client, value: str) -> None:
        headers = {"idempotency-key": value} if self.is_keyed else {}
        body = {"records": [{"key": value, "value": value}]}
        while True:
            answer = client.post(f"/v1/topics/{TOPIC}/records", json=body, headers=headers)
            if answer.status_code == 200:
                self.acknowledged.append(value)
                return
            assert answer.status_code in (429, 503, 504), answer.text
            if not self.is_keyed:
                self.unknown.append(value)
                return


def writers(cluster: ProcessCluster, nodes: list[int]) -> Iterator[Writer]:
    for node in nodes:
        for is_keyed in (False, True):
            writer = Writer(cluster, node, is_keyed=is_keyed)
            writer.start()
            yield writer


def await_progress(running: list[Writer]) -> None:
    """Until each of them has had fifty more answers."""
    wanted = [len(writer.acknowledged) + 50 for writer in running]
    wait_until(
        "all write",
        lambda: all(
            len(writer.acknowledged) > count for writer, count in zip(running, wanted, strict=True)
        ),
    )


def test_nothing_acknowledged_is_lost_or_doubled_when_leaders_die(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    cluster.await_in_sync()
    victim = cluster.leader(TOPIC).number
    others = [node for node in cluster.nodes if node != victim]
    running = list(writers(cluster, others))
    for _ in range(2):
        await_progress(running)
        cluster.nodes[victim].kill()
        await_progress(running)
        cluster.nodes[victim].start()
        cluster.await_in_sync()
    for writer in running:
        writer.stopping.set()
    for writer in running:
        writer.join(WAIT_S)
        assert not writer.is_alive()
    for node in cluster.nodes:
        found = all_values(cluster, node)
        doubled = {value for value, times in found.items() if times > 1}
        assert not doubled
        for writer in running:
            assert not set(writer.acknowledged) - set(found)
    # Those that could not tell are few: the broker itself looked for the next leader.
    assert sum(len(writer.unknown) for writer in running) < 10


def test_any_node_answers_for_groups_and_partitions_of_others(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
    groups = [f"group-{number}" for number in range(6)]
    for node, group in zip(itertools.cycle(cluster.nodes), groups, strict=False):
        offsets = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": 0}]}
        answer = httpx.put(
            f"{url(cluster, node)}/v1/groups/{group}/offsets", json=offsets, timeout=WAIT_S
        )
        assert answer.status_code == 204, answer.text
    for node in cluster.nodes:
        with httpx.Client(base_url=url(cluster, node), timeout=WAIT_S) as client:
            listed = client.get("/v1/groups").json()
            assert [each["group_id"] for each in listed["groups"]] == groups
            assert listed["unreached"] == []
            for group in groups:
                assert client.get(f"/v1/groups/{group}").json()["state"] == "Empty"
                assert len(client.get(f"/v1/groups/{group}/offsets").json()["offsets"]) == 1
            records = [{"partition": each, "value": node} for each in range(PARTITIONS)]
            written = client.post(f"/v1/topics/{TOPIC}/records", json={"records": records})
            assert written.status_code == 200, written.text
            assert client.get("/v1/nodes").json()["nodes"][2]["alive"] is True
    for partition in range(PARTITIONS):
        answer = httpx.get(
            f"{url(cluster, 1)}/v1/topics/{TOPIC}/records?partition={partition}", timeout=WAIT_S
        )
        assert [each["value"] for each in answer.json()["records"]] == list(cluster.nodes)


def health(cluster: ProcessCluster, node: int, what: str) -> int:
    return httpx.get(f"{url(cluster, node)}/health/{what}", timeout=WAIT_S).status_code


def test_a_node_says_whether_it_is_ready_and_in_sync(penstock_cluster: Make) -> None:
    """Without a controller it is not ready, and cut off from a leader it is not in sync."""
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic(TOPIC, partitions=PARTITIONS)
    for node in cluster.nodes:
        wait_until("it is in sync", lambda node=node: health(cluster, node, "in-sync") == 200)  # type: ignore[misc]
    cluster.partition({1, 2}, {3})
    wait_until("it is behind", lambda: health(cluster, 3, "in-sync") == 503)
    late = httpx.get(f"{url(cluster, 3)}/health/in-sync", timeout=WAIT_S).json()
    assert late["detail"].startswith("Not in sync: "), late
    wait_until("its own copies are", lambda: health(cluster, 1, "in-sync") == 200)
    cluster.heal()
    wait_until("it caught up", lambda: health(cluster, 3, "in-sync") == 200)
    ready = f"{url(cluster, 1)}/health/ready"
    assert httpx.get(ready, timeout=WAIT_S).status_code == 200
    for node in (2, 3):
        cluster.nodes[node].kill()
    wait_until("it noticed", lambda: httpx.get(ready, timeout=WAIT_S).status_code == 503)
    live = f"{url(cluster, 1)}/health/live"
    assert httpx.get(live, timeout=WAIT_S).status_code == 200
