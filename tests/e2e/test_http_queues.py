"""Proves that queues work over HTTP by lease tokens, through any node, and when clients and leaders
go away."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from penstock.testing import ProcessCluster
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

WAIT_S = 60.0
WAIT_MS = 30_000
GROUP = "workers"


class Queue:
    """One queue, as a user of HTTP sees it."""

    def __init__(self, base: str, topic: str, group: str = GROUP) -> None:
        self.client = httpx.Client(base_url=base, timeout=WAIT_S)
        self.topic = topic
        self.path = f"/v1/queues/{topic}/{group}"

    def send(self, *values: Any, **fields: Any) -> None:
        records = [{"value": value, **fields} for value in values]
        answer = self.client.post(f"/v1/topics/{self.topic}/records", json={"records": records})
        assert answer.status_code == 200, answer.text

    def ask(self, verb: str, **body: Any) -> httpx.Response:
        return self.client.post(f"{self.path}/{verb}", json=body)

    def poll(self, limit: int = 10, wait_ms: int = WAIT_MS, **body: Any) -> list[dict[str, Any]]:
        answer = self.ask("poll", limit=limit, wait_ms=wait_ms, **body)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    def settle(self, verb: str, *messages: dict[str, Any], **body: Any) -> int:
        return self.ask(verb, tokens=[each["token"] for each in messages], **body).status_code

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(self.path).json()
        return found

    def is_idle(self) -> bool:
        return self.stats()["leased"] == 0


@pytest.fixture
def queue(broker: Broker, make_topic: MakeTopic) -> Iterator[Queue]:
    made = Queue(f"http://{broker.http}", make_topic())
    yield made
    made.client.close()


def values(messages: list[dict[str, Any]]) -> list[Any]:
    return [each["value"] for each in messages]


def test_messages_are_polled_and_settled_by_token(queue: Queue) -> None:
    queue.send({"n": 1}, {"n": 2}, key="k", headers={"h": "v"})
    one, two = queue.poll(lease_ms=3_600_000)
    assert (one["value"], one["encoding"], one["key"]) == ({"n": 1}, "json", "k")
    assert one["headers"] == [{"name": "h", "value": "v", "encoding": "text"}]
    assert (one["attempt"], one["offset"], two["offset"]) == (1, 0, 1)
    assert queue.poll(wait_ms=0) == []
    assert queue.settle("extend", one, lease_ms=60_000) == 200
    assert queue.settle("nack", one, delay_ms=0) == 200
    (again,) = queue.poll()
    assert (again["value"], again["attempt"]) == ({"n": 1}, 2)
    mixed = queue.ask("ack", tokens=[one["token"], again["token"], "nonsense"])
    assert mixed.status_code == 207
    outcomes = [each["outcome"] for each in mixed.json()["results"]]
    assert outcomes == ["expired", "ok", "malformed"]
    late = queue.ask("ack", tokens=[again["token"]])
    assert (late.status_code, late.json()["reason"]) == (409, "lease_done")
    assert late.headers["content-type"] == "application/problem+json"
    assert late.json()["results"][0]["outcome"] == "done"
    assert queue.settle("reject", two) == 200
    assert queue.stats()["leased"] == queue.stats()["ready"] == 0


def test_a_waiting_poll_wakes_soon_after_a_message_comes(queue: Queue) -> None:
    queue.poll(wait_ms=0)
    waits: list[float] = []
    for _ in range(10):
        found: list[Any] = []
        asked = threading.Event()
        poll = threading.Thread(target=_poll_one, args=(queue, found, asked))
        poll.start()
        # From here on it is before the record on all of its way: one loop, and one channel.
        assert asked.wait(WAIT_S)
        with httpx.Client(base_url=queue.client.base_url, timeout=WAIT_S) as other:
            body = {"records": [{"value": 1}]}
            assert other.post(f"/v1/topics/{queue.topic}/records", json=body).status_code == 200
            sent = time.monotonic()
            poll.join()
            waits.append(time.monotonic() - sent)
        assert queue.settle("ack", *found) == 200
    # The publish is answered at about the time when the poll wakes.
    assert sorted(waits)[5] < 0.1, waits


def _poll_one(queue: Queue, found: list[Any], asked: threading.Event) -> None:
    """Sets the event when all of the request is sent."""

    def trace(event: str, _: object) -> None:
        if event == "http11.send_request_body.complete":
            asked.set()

    body = {"limit": 1, "wait_ms": WAIT_MS}
    answer = queue.client.post(f"{queue.path}/poll", json=body, extensions={"trace": trace})
    assert answer.status_code == 200, answer.text
    found += answer.json()["messages"]


def test_a_queue_is_operated(queue: Queue) -> None:
    assert queue.client.get(f"{queue.path}/peek").status_code == 404
    assert queue.poll(wait_ms=0) == []
    queue.send("a", "b", "c")
    peeked = queue.client.get(f"{queue.path}/peek?limit=2&encoding=text").json()["messages"]
    assert [(each["value"], each["attempt"]) for each in peeked] == [('"a"', 0), ('"b"', 0)]
    assert "token" not in peeked[0]
    assert queue.ask("pause").status_code == 204
    assert queue.poll(wait_ms=0) == []
    stats = queue.stats()
    assert (stats["paused"], stats["ready"]) == (True, 3)
    assert 0 <= stats["oldest_age_ms"] < 60_000
    assert queue.ask("resume").status_code == 204
    (one,) = queue.poll(1)
    assert queue.settle("nack", one, delay_ms=60_000) == 200
    assert queue.stats()["delayed"] == 1
    assert queue.ask("purge").json() == {"purged": 3}
    assert queue.poll(wait_ms=0) == []
    for body in ({"limit": 0}, {"lease_ms": 10}, {"wait": 1}, {"limit": "many"}):
        assert queue.ask("poll", **body).status_code == 400
    assert queue.ask("ack", tokens=[]).status_code == 400
    form = queue.client.post(f"{queue.path}/pause", content="a=b")
    assert form.status_code == 415
    missing = Queue(str(queue.client.base_url), "no-such-topic")
    assert missing.ask("poll").status_code == 404
    refused = queue.ask("redrive", limit=1)
    assert refused.json()["detail"] == f"Group {GROUP} has no dead-letter topic."


def test_a_poll_that_is_cut_off_leaves_nothing_leased(queue: Queue) -> None:
    queue.poll(wait_ms=0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{queue.client.base_url}{queue.path}/poll", json={"wait_ms": WAIT_MS}, timeout=0.3
        )
    queue.send("a")
    (message,) = queue.poll(1)
    assert message["attempt"] == 1


def test_events_carry_tokens_and_a_dropped_stream_gives_back(queue: Queue) -> None:
    queue.send(*range(5))
    target = f"{queue.path}/events?limit=2&lease_ms=3600000"
    with queue.client.stream("GET", target) as stream:
        events = messages_of(stream)
        first, second = next(events), next(events)
        assert values([first, second]) == [0, 1]
        # No more than two are out; an ack makes room.
        assert queue.stats()["leased"] == 2
        assert queue.settle("ack", first) == 200
        third = next(events)
        assert (third["value"], third["attempt"]) == (2, 1)
        assert queue.settle("extend", third) == 200
    wait_until("what was not acked is given back", queue.is_idle, timeout_s=WAIT_S)
    left = queue.poll()
    assert sorted(values(left)) == [1, 2, 3, 4]
    assert {each["value"]: each["attempt"] for each in left} == {1: 2, 2: 2, 3: 1, 4: 1}


def messages_of(stream: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in stream.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


Make = Callable[..., ProcessCluster]
PARTITIONS = 6
COUNT = 300


class Worker(threading.Thread):
    """Polls through one node, and acks all it gets, until everything was seen."""

    def __init__(self, base: str, seen: Counter[int], acked: set[int]) -> None:
        super().__init__(daemon=True)
        self.queue = Queue(base, "jobs")
        self.seen = seen
        self.acked = acked
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            answer = self.queue.ask("poll", limit=7, wait_ms=500, lease_ms=5_000)
            if answer.status_code != 200:
                assert answer.status_code in (429, 503, 504), answer.text
                continue
            messages = answer.json()["messages"]
            if not messages:
                continue
            self.seen.update(values(messages))
            results = self.queue.ask("ack", tokens=[each["token"] for each in messages]).json()
            outcomes = [each["outcome"] for each in results["results"]]
            done = zip(values(messages), outcomes, strict=True)
            self.acked.update(value for value, outcome in done if outcome == "ok")


@pytest.mark.slow
@pytest.mark.xdist_group("cluster-clients")
@pytest.mark.timeout(180)
def test_any_node_serves_a_queue_while_a_leader_dies(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    victim, *others = cluster.nodes
    bases = [f"http://{cluster.nodes[node].http}" for node in (*others, victim)]
    queue = Queue(bases[0], "jobs")
    topic = {"name": "jobs", "partitions": PARTITIONS, "replication_factor": 3}
    assert queue.client.post("/v1/topics", json=topic).status_code == 201
    # Who waits at all leaders hears of a message of any of them.
    for partition in range(PARTITIONS):
        found: list[Any] = []
        poll = threading.Thread(target=lambda found=found: found.extend(queue.poll(5)))
        poll.start()
        other = Queue(bases[1], "jobs")
        other.send(f"early {partition}", partition=partition)
        poll.join()
        assert values(found) == [f"early {partition}"]
        assert Queue(bases[2], "jobs").settle("ack", *found) == 200
    seen: Counter[int] = Counter()
    acked: set[int] = set()
    workers = [Worker(base, seen, acked) for base in bases[:2]]
    for worker in workers:
        worker.start()
    for number in range(COUNT):
        queue.send(number, partition=number % PARTITIONS)
        if number == COUNT // 2:
            cluster.nodes[victim].kill()
    wait_until("all is acked", lambda: len(acked) == COUNT, timeout_s=90)
    for worker in workers:
        worker.stopping.set()
        worker.join()
    assert set(seen) == set(range(COUNT))
    # A lease and its token survive their leader: what was acked is not delivered again.
    assert sum(seen.values()) < COUNT * 1.5
    stats = queue.stats()
    assert (stats["ready"], stats["leased"]) == (0, 0)
