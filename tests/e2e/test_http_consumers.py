"""Proves that clients that only poll over HTTP share a group's partitions, lose nothing, and go on
where they were when the process that held their consumer dies."""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import Consumer as KafkaConsumer

from penstock.testing import ProcessCluster
from tests.e2e.commands import fresh
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

WAIT_S = 60.0
PARTITIONS = 4


# So that a group hears of its members soon.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    flags = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    made = Broker(tmp_path_factory.mktemp("consumers") / "data", *flags).start()
    yield made
    made.close()


@pytest.fixture
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.http}", timeout=WAIT_S) as made:
        yield made


class Member:
    def __init__(self, client: httpx.Client, group: str, topic: str, **more: Any) -> None:
        self.client = client
        body = {"topics": [topic], "start": "earliest", **more}
        made = client.post(f"/v1/groups/{group}/consumers", json=body)
        assert made.status_code == 201, made.text
        self.path = f"/v1/groups/{group}/consumers/{made.json()['consumer']}"

    def ask(self, **body: Any) -> httpx.Response:
        return self.client.post(f"{self.path}/poll", json=body)

    def poll(self, **body: Any) -> list[tuple[int, Any]]:
        """Partition and value of each record."""
        answer = self.ask(**body)
        assert answer.status_code == 200, answer.text
        return [
            (record["partition"], record["value"])
            for each in answer.json()["partitions"]
            for record in each["records"]
        ]

    def close(self) -> None:
        assert self.client.delete(self.path).status_code == 204


def write(client: httpx.Client, topic: str, values: range) -> None:
    records = [{"value": n, "partition": n % PARTITIONS} for n in values]
    answer = client.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


def until_all(members: list[Member], count: int) -> list[list[tuple[int, Any]]]:
    """Polls in turn until that many records came; what each of them got."""
    found: list[list[tuple[int, Any]]] = [[] for _ in members]
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline, found
        for member, own in zip(members, found, strict=True):
            own += member.poll(wait_ms=200)
    return found


def test_consumers_over_http_share_the_partitions_of_a_group(
    broker: Broker, client: httpx.Client
) -> None:
    topic, group = create_topic(broker.bootstrap, partitions=PARTITIONS), fresh("group")
    one = Member(client, group, topic)
    write(client, topic, range(40))
    first = one.poll(limit=7, wait_ms=10_000)
    assert 1 <= len(first) <= 7
    rest = until_all([one], 40 - len(first))[0]
    assert sorted(n for _, n in first + rest) == list(range(40))
    for partition in range(PARTITIONS):
        assert [n for p, n in first + rest if p == partition] == list(range(partition, 40, 4))

    # A second one takes half of them, once the first has asked again.
    two = Member(client, group, topic)
    members = client.get(f"/v1/groups/{group}").json()["members"]
    assert {member["client_id"] for member in members} == {"http"}
    assert len(members) == 2

    def is_shared() -> bool:
        before = len(client.get(f"/v1/topics/{topic}/records?partition=0").json()["records"])
        write(client, topic, range(40 + 4 * before, 44 + 4 * before))
        shares = until_all([one, two], 4)
        return all({p for p, _ in share} for share in shares)

    wait_until("both have some", is_shared)

    # What is not committed comes to the one that is left.
    two.poll()
    write(client, topic, range(1_000, 1_004))
    taken: list[Any] = []
    wait_until("it got some", lambda: bool(taken.extend(two.poll(commit=False)) or taken))
    two.close()
    missing = set(range(1_000, 1_004))
    seen: set[Any] = set()
    wait_until(
        "the other one gets all of them",
        lambda: seen.update(n for _, n in one.poll(wait_ms=200)) or missing <= seen,
    )
    assert one.client.post(f"{one.path}/commit", json={}).status_code == 204
    offsets = client.get(f"/v1/groups/{group}/offsets").json()["offsets"]
    ends = {
        p["partition"]: p["end_offset"]
        for p in client.get(f"/v1/topics/{topic}").json()["partitions"]
    }
    assert {each["partition"]: each["offset"] for each in offsets} == ends
    one.close()
    gone = one.ask()
    assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_consumer")

    # Kafka's clients go on where it was.
    write(client, topic, range(2_000, 2_001))
    kafka = KafkaConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "error"}
    )
    try:
        kafka.subscribe([topic])
        found = kafka.poll(WAIT_S)
        assert found is not None
        assert found.error() is None
        assert found.value() == b"2000"
    finally:
        kafka.close()


@pytest.mark.xdist_group("cluster-clients")
@pytest.mark.timeout(180)
def test_when_a_node_dies_its_consumers_are_gone_and_their_records_come_to_others(
    penstock_cluster: Callable[..., ProcessCluster],
) -> None:
    """What was committed does not come again; what was only delivered does, to the one that is
    left. Neither another node nor the same one after a restart knows the consumer."""
    cluster, topic = penstock_cluster(nodes=3, settings=SETTINGS), "orders"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    cluster.await_in_sync()
    with contextlib.ExitStack() as ends:
        first, second, third = (
            ends.enter_context(httpx.Client(base_url=f"http://{node.http}", timeout=WAIT_S))
            for node in cluster.nodes.values()
        )
        lost, left = Member(first, "g", topic), Member(second, "g", topic)
        written = itertools.count()
        committed, delivered = set[int](), set[int]()
        seen = Counter[int]()

        def both_have_some() -> bool:
            """The last poll of the one commits what those before it delivered."""
            write(second, topic, range(4 * (n := next(written)), 4 * n + 4))
            seen.update(value for _, value in left.poll(wait_ms=100))
            found = {value for _, value in lost.poll(wait_ms=100)}
            committed.update(delivered)
            delivered.clear()
            delivered.update(found)
            return bool(committed and delivered and seen)

        wait_until("both have records", both_have_some, timeout_s=WAIT_S)
        cluster.nodes[1].kill()
        missing = set(range(4 * next(written))) - committed - seen.keys()
        assert delivered <= missing

        def all_came() -> bool:
            """The coordinator of the group may have to be elected first."""
            answer = left.ask(wait_ms=200)
            assert answer.status_code in (200, 503, 504), answer.text
            if answer.status_code == 200:
                seen.update(
                    record["value"]
                    for each in answer.json()["partitions"]
                    for record in each["records"]
                )
            return missing <= seen.keys()

        wait_until("what was not committed comes to the other one", all_came, timeout_s=WAIT_S)
        assert not committed & seen.keys(), "what was committed does not come again"

        cluster.nodes[1].start()
        cluster.await_in_sync()
        for client in (second, third, first):
            gone = client.post(f"{lost.path}/poll", json={})
            assert (gone.status_code, gone.json()["reason"]) == (404, "unknown_consumer")

        # Another one can be made through any node, and gets its share.
        new = Member(third, "g", topic)

        def new_has_some() -> bool:
            write(third, topic, range(4 * (n := next(written)), 4 * n + 4))
            left.poll(wait_ms=100)
            return bool(new.poll(wait_ms=100))

        wait_until("the new one has partitions", new_has_some, timeout_s=WAIT_S)


def test_a_consumer_ends_with_its_process_and_another_one_goes_on(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    with httpx.Client(base_url=f"http://{broker.http}", timeout=WAIT_S) as client:
        write(client, topic, range(8))
        one = Member(client, "g", topic)
        done = until_all([one], 8)[0]
        assert len(done) == 8
        write(client, topic, range(8, 16))
        # The poll commits the first eight, and what it delivers is never committed.
        assert one.poll(wait_ms=5_000)
    (doors,) = psutil.Process(broker.pid).children()
    os.kill(doors.pid, signal.SIGKILL)
    doors.wait(WAIT_S)
    with httpx.Client(base_url=f"http://{broker.http}", timeout=WAIT_S) as client:
        lost = client.post(f"{one.path}/poll", json={})
        assert (lost.status_code, lost.json()["reason"]) == (404, "unknown_consumer")
        again = until_all([Member(client, "g", topic)], 8)[0]
        assert sorted(n for _, n in again) == list(range(8, 16))


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"topics": []}, 400, "invalid_request"),
        ({"topics": ["no-such-topic"]}, 404, "unknown_topic_or_partition"),
        ({"topics": ["t"], "start": "middle"}, 400, "invalid_request"),
        ({"topics": ["t"], "idle_ms": 1}, 400, "invalid_request"),
    ],
)
def test_a_consumer_that_can_not_be_made(
    client: httpx.Client, body: dict[str, Any], status: int, reason: str
) -> None:
    answer = client.post(f"/v1/groups/{fresh('group')}/consumers", json=body)
    assert (answer.status_code, answer.json()["reason"]) == (status, reason)
