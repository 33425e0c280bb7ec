"""Proves that the HTTP door serves real clients, costs nothing before, and survives failures."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import MakeBroker, MakeTopic
from tests.e2e.processes import Broker, DidNotStart
from tests.waiting import wait_until

WAIT_S = 60.0
# Longer than the door waits for the rest of a request, on a busy machine.
CUT_OFF_S = 45.0


def url(broker: Broker) -> str:
    return f"http://{broker.http}"


@pytest.fixture
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as made:
        yield made


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


def doors_of(broker: Broker) -> list[psutil.Process]:
    return psutil.Process(broker.pid).children()


def write(client: httpx.Client, topic: str, *values: Any) -> list[dict[str, Any]]:
    records = [{"value": value} for value in values]
    answer = client.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_nothing_runs_before_the_first_request(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    assert doors_of(broker) == []
    output = subprocess.run(
        ["curl", "-sS", "--fail-with-body", f"{url(broker)}/health/ready"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    ).stdout
    assert json.loads(output) == {"status": "ok", "node": 0}
    assert len(doors_of(broker)) == 1
    process = doors_of(broker)[0]
    # The broker comes first where both want a core.
    assert process.nice() > psutil.Process(broker.pid).nice()
    assert broker.terminate() == 0
    assert not process.is_running()
    assert "Traceback" not in broker.stderr()


def test_curl_and_kafkas_clients_use_the_same_topic(
    broker: Broker, client: httpx.Client, topic: str
) -> None:
    body = '{"records": [{"key": "k", "value": {"n": 1}, "headers": {"h": "v"}}]}'
    answer = subprocess.run(
        [
            *("curl", "-sS", "-H", "Content-Type: application/json", "-d", body),
            f"{url(broker)}/v1/topics/{topic}/records",
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert json.loads(answer.stdout) == {"results": [{"partition": 0, "offset": 0}]}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number in range(2, 200):
        producer.produce(topic, json.dumps({"n": number}))
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert (message.key(), message.value()) == (b"k", b'{"n":1}')
    assert message.headers() == [("h", b"v")]
    found = client.get(f"/v1/topics/{topic}/records?limit=1000&offset=0").json()
    assert [record["value"]["n"] for record in found["records"]] == list(range(1, 200))
    middle = found["records"][100]
    by_time = client.get(
        f"/v1/topics/{topic}/records?limit=1&timestamp={middle['timestamp']}"
    ).json()
    assert by_time["records"][0]["timestamp"] >= middle["timestamp"]
    consumer.commit(message=message, asynchronous=False)
    group = client.get(f"/v1/groups/{topic}-readers").json()
    assert (group["state"], len(group["members"])) == ("Stable", 1)
    assert client.get(f"/v1/groups/{topic}-readers/offsets").json()["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 1, "metadata": ""}
    ]
    assert client.delete(f"/v1/groups/{topic}-readers").status_code == 409
    consumer.close()
    wait_until(
        "the group is empty",
        lambda: client.delete(f"/v1/groups/{topic}-readers").status_code == 204,
    )


def test_a_topic_is_an_arrow_stream(client: httpx.Client, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    written = {"value": "x" * 1_000, "encoding": "text", "key": "k", "headers": {"h": "v"}}
    for _ in range(10):
        answer = client.post(f"/v1/topics/{topic}/records", json={"records": [written] * 3_000})
        assert answer.status_code == 200, answer.text
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    answer = client.get(f"/v1/topics/{topic}/records", headers=accept)
    assert answer.headers["content-type"] == accept["accept"]
    found = pa.ipc.open_stream(answer.content).read_all()
    assert found["offset"].to_pylist() == list(range(30_000))
    assert set(found["value"].to_pylist()) == {b"x" * 1_000}
    assert found["headers"][0].as_py() == [{"key": "h", "value": b"v"}]
    # A client that goes away in the middle leaves nothing behind.
    with client.stream("GET", f"/v1/topics/{topic}/records", headers=accept) as opened:
        next(opened.iter_bytes())
    assert client.get(f"/v1/topics/{topic}/records?limit=1", headers=accept).status_code == 200


def test_topics_and_settings_are_administered(client: httpx.Client) -> None:
    made = client.post("/v1/topics", json={"name": "administered", "partitions": 2})
    assert (made.status_code, made.json()["partitions"]) == (201, 2)
    assert client.post("/v1/topics", json={"name": "administered"}).status_code == 409
    assert client.post("/v1/topics", json={"name": "a/b"}).status_code == 400
    bad = client.post("/v1/topics", json={"name": "x", "settings": {"no.such": "1"}})
    assert (bad.status_code, bad.json()["reason"]) == (400, "invalid_config")
    path = "/v1/topics/administered"
    assert client.patch(path, json={"partitions": 5}).json()["partitions"] == 5
    assert client.patch(path, json={"partitions": 1}).status_code == 400
    changed = client.patch(f"{path}/settings", json={"settings": {"retention.ms": "99"}})
    assert changed.status_code == 204
    described = client.get(path).json()
    assert described["settings"] == {"retention.ms": "99"}
    assert [each["end_offset"] for each in described["partitions"]] == [0] * 5
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get(f"{path}/records").status_code == 404


def test_metrics_tell_of_the_door_and_of_its_broker(client: httpx.Client, topic: str) -> None:
    write(client, topic, 1, 2, 3)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(answer.text)}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found["penstock_topic_records_in_total", topic] == 3
    assert found["penstock_partitions_led",] > 0
    written = ("http", "POST /v1/topics/{topic}/records")
    assert found["penstock_request_seconds_count", *written] > 0
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert "penstock_topic_records_in" in {each.name for each in open_metrics(answer.text)}


def test_a_stream_follows_and_is_left_without_a_trace(client: httpx.Client, topic: str) -> None:
    write(client, topic, "before")
    got: list[str] = []
    with client.stream("GET", f"/v1/topics/{topic}/events?from=earliest") as stream:
        writer = threading.Thread(target=lambda: write(client, topic, "after"))
        for line in stream.iter_lines():
            if line.startswith("data: "):
                got.append(json.loads(line[6:])["value"])
                if len(got) == 1:
                    writer.start()
            if len(got) == 2:
                break
    assert got == ["before", "after"]
    writer.join()
    wait_until(
        "the stream is forgotten",
        lambda: "penstock_http_open_streams 0.0" in client.get("/metrics").text,
    )


# Failures


def test_a_door_that_dies_is_replaced_at_the_next_connection(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        write(client, "t", 1)
        (door,) = doors_of(broker)
        door.kill()
        wait_until("the broker noticed", lambda: "doors' process" in broker.stderr())
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        assert write(client, "t", 2) == [{"partition": 0, "offset": 1}]
    (another,) = doors_of(broker)
    assert another.pid != door.pid
    assert f"process {door.pid} ended with -9" in broker.stderr()


def test_a_door_ends_with_a_broker_that_is_killed_and_leaves_its_port(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        write(client, "t", 1)
    (door,) = doors_of(broker)
    http = broker.http
    broker.kill()
    broker.start()
    assert broker.http == http
    wait_until("the old process ended", lambda: not door.is_running())
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        assert write(client, "t", 2) == [{"partition": 0, "offset": 1}]


def test_a_stop_does_not_wait_for_streams(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        write(client, "t", 1)
        with client.stream("GET", "/v1/topics/t/events") as stream:
            lines = stream.iter_lines()
            assert [next(lines), next(lines)] == [": following", "id: 0:1"]
            started = time.monotonic()
            assert broker.terminate() == 0
            assert time.monotonic() - started < 30
            assert not any(lines)
    assert "Traceback" not in broker.stderr()
    assert "timeout" not in broker.stderr()


def test_a_taken_port_is_refused_with_a_sentence(make_broker: MakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = make_broker()
        broker.http = address
        with pytest.raises(DidNotStart) as refused:
            broker.start()
    assert f"can't listen on {address}: the address is already in use" in refused.value.stderr
    assert "Choose another one with --http HOST:PORT." in refused.value.stderr
    assert not broker.data_dir.exists()


def test_the_door_can_be_off(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.http = "off"
    broker.start()
    assert broker.http == "off"


# Hostile clients


def raw(broker: Broker, *pieces: bytes) -> socket.socket:
    host, _, port = broker.http.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=CUT_OFF_S)
    for piece in pieces:
        connection.sendall(piece)
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with connection:
        try:
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:
            pass
    return found


HEAD = b"POST /v1/topics/hostile/records HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\x02 nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET /v1/topics HTTP/1.1\r\nConnection: close\r\n\r\n", b"421"),
        (
            HEAD + b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n"
            b"Connection: close\r\n\r\n{}",
            b"413",
        ),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", b"400"),
    ],
)
def test_malformed_and_oversized_requests_get_an_answer(
    broker: Broker, sent: bytes, status: bytes
) -> None:
    try:
        found = answer_of(raw(broker, sent))
    except ConnectionError:
        # It may have been closed while we still sent.
        return
    assert not found or found.split(b" ", 2)[1] == status, found[:300]


def test_an_endless_body_is_cut_off(broker: Broker) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    connection = raw(
        broker,
        HEAD + b"Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    sent = 0
    try:
        while sent < 200 * 2**20:
            connection.sendall(chunk)
            sent += len(chunk)
    except (ConnectionError, TimeoutError):
        pass
    connection.close()
    assert sent < 100 * 2**20


@pytest.mark.slow
def test_slow_clients_are_cut_off_and_others_are_served(make_broker: MakeBroker) -> None:
    """Half a head, no head at all, half a body, and a reader that does not read."""
    broker = make_broker().start()
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        for _ in range(8):
            write(client, "large", *("x" * 100_000 for _ in range(8)))
        slow = [raw(broker, b"GET /v1/topics HTTP/1.1\r\nHost: loc") for _ in range(100)]
        slow += [raw(broker) for _ in range(100)]
        body = HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        slow += [raw(broker, body) for _ in range(100)]
        request = b"GET /v1/topics/large/events?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n"
        unread = [raw(broker, request) for _ in range(20)]
        (door,) = doors_of(broker)
        started = time.monotonic()
        while time.monotonic() < started + 20:
            write(client, "t", 1)
            time.sleep(0.05)
        for connection in slow:
            found = answer_of(connection)
            assert not found or b" 408 " in found
        # What was sent to those who do not read is what buffers of sockets hold, and then the end.
        for connection in unread:
            assert len(answer_of(connection)) < 8 * 2**20
        assert door.memory_info().rss < 250 * 2**20
        assert doors_of(broker) == [door]
    assert "Traceback" not in broker.stderr()


def test_hundreds_of_connections_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    connections = [raw(broker) for _ in range(400)]
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as client:
        write(client, "t", 1)
    for connection in connections:
        connection.close()
    assert os.path.exists(f"/proc/{broker.pid}")
    broker.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
    assert broker.process.wait(WAIT_S) == 0  # type: ignore[union-attr]
