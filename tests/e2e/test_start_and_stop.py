"""Proves that a start which can't work says why in one sentence, and that SIGTERM ends in order."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.metadata import MetadataRequest
from penstock.server.node import DRAIN_TIMEOUT_S
from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.processes import Broker, clean_environment, command
from tests.e2e.stopwatch import check_quick
from tests.e2e.wire import FETCH_VERSION, Wire, fetch_frame, frame

REFUSED = 1
MISUSED = 2
METADATA_VERSION = 9
# So long that nobody would have waited for it.
READER_WAITS_S = 90


def refusal(
    arguments: Sequence[str], *, exit_code: int = REFUSED, prefix: Sequence[str] = ()
) -> str:
    """The one sentence that a start prints before it gives up."""
    outcome = subprocess.run(
        [*prefix, *command("up", *arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
    )
    assert outcome.returncode == exit_code, outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    lines = outcome.stderr.strip().splitlines()
    sentence = lines[-1]
    assert sentence.endswith("."), sentence
    return sentence


@pytest.fixture
def free_flags(tmp_path: Path) -> list[str]:
    return ["--kafka", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]


def test_a_second_start_on_a_data_directory_is_refused(make_broker: MakeBroker) -> None:
    running = make_broker().start()
    sentence = refusal(["--kafka", "127.0.0.1:0", "--data-dir", str(running.data_dir)])
    assert str(running.data_dir) in sentence
    assert running.is_running
    running.kill()
    running.start()  # The lock dies with its holder, however it dies.


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refusal(["--kafka", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")])
    assert str(port) in sentence
    assert list(tmp_path.iterdir()) == [], "it leaves no directory behind"


@pytest.mark.parametrize(
    "flags",
    [["--nonsense"], ["--kafka", "nonsense"], ["--node", "minus-one"], ["--set", "no.such=1"]],
    ids=" ".join,
)
def test_a_bad_flag_is_refused(free_flags: list[str], flags: list[str]) -> None:
    refusal([*free_flags, *flags], exit_code=MISUSED)


def test_a_data_directory_of_a_newer_format_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    assert broker.terminate() == 0
    format_file = broker.data_dir / "penstock.json"
    text = format_file.read_text()
    # The file holds its content twice.
    content = json.loads(text[: len(text) // 2])
    content["format"] += 1
    before = 2 * json.dumps(content)
    format_file.write_text(before)
    sentence = refusal(["--kafka", "127.0.0.1:0", "--data-dir", str(broker.data_dir)])
    assert "format" in sentence
    assert format_file.read_text() == before, "a refused start must not touch the directory"


def test_a_data_directory_of_another_node_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    assert broker.terminate() == 0
    flags = ["--kafka", "127.0.0.1:0", "--data-dir", str(broker.data_dir), "--node", "7"]
    assert "7" in refusal(flags)


def test_a_data_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    """Root may write anywhere, so a root test gives that privilege away before it starts."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    prefix: list[str] = []
    if os.getuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv is missing")
        os.chown(data_dir, 65534, 65534)
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
    data_dir.chmod(0o555)
    sentence = refusal(["--kafka", "127.0.0.1:0", "--data-dir", str(data_dir)], prefix=prefix)
    assert str(data_dir) in sentence
    assert list(data_dir.iterdir()) == []


def test_a_file_in_place_of_the_data_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert str(path) in refusal(["--kafka", "127.0.0.1:0", "--data-dir", str(path)])


def test_a_wildcard_address_needs_an_advertised_one(tmp_path: Path) -> None:
    flags = ["--kafka", "0.0.0.0:0", "--data-dir", str(tmp_path / "data")]
    outcome = subprocess.run(
        command("up", *flags), capture_output=True, text=True, timeout=60, env=clean_environment()
    )
    assert outcome.returncode != 0
    assert "--advertise" in outcome.stderr


def test_the_advertised_address_is_what_clients_are_told(make_broker: MakeBroker) -> None:
    broker = make_broker("--advertise", "127.0.0.1:19092", "--node", "5").start()
    with Wire(broker.connect()) as wire:
        wire.send(frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[])))
        answer = wire.receive(ApiKey.METADATA, METADATA_VERSION)
    nodes = [(node.node_id, node.host, node.port) for node in answer.brokers]
    assert nodes == [(5, "127.0.0.1", 19092)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_drains_and_exits_with_0(make_broker: MakeBroker, number: signal.Signals) -> None:
    """Waiting readers are answered at once, producers get their acknowledgements or retry."""
    broker = make_broker().start()
    topic, quiet = create_topic(broker.bootstrap), create_topic(broker.bootstrap)
    acknowledged: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 200,
        }
    )

    def note(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.offset())  # type: ignore[attr-defined]

    with Wire(broker.connect()) as reader:
        reader.send(fetch_frame(quiet, offset=0, wait_ms=READER_WAITS_S * 1000))
        with Wire(broker.connect()) as other:
            # What came before this was answered came to the broker, too.
            other.fetch(quiet, offset=0)
        for _ in range(500):
            producer.produce(topic, b"x" * 100, on_delivery=note)
        producer.poll(0.05)
        started = time.monotonic()
        assert broker.process is not None
        broker.process.send_signal(number)
        assert broker.process.wait(timeout=READER_WAITS_S / 2) == 0
        assert time.monotonic() - started < DRAIN_TIMEOUT_S
        assert reader.receive(ApiKey.FETCH, FETCH_VERSION).error_code == ErrorCode.NONE
    assert "Traceback" not in broker.stderr()
    broker.start()
    assert producer.flush(60) == 0
    assert len(acknowledged) == 500
    found = BY_NAME["kafka-python"].consume(broker.bootstrap, topic, 500)
    assert [message.offset for message in found] == list(range(500))


def test_a_clean_stop_leaves_no_thread_waiting(make_broker: MakeBroker) -> None:
    """An idle broker with idle connections stops at once."""

    def stop() -> float:
        broker = make_broker().start()
        idle = [broker.connect() for _ in range(20)]
        began = time.monotonic()
        assert broker.terminate() == 0
        taken_s = time.monotonic() - began
        for connection in idle:
            connection.close()
        return taken_s

    check_quick(stop, 3)


def test_the_standard_event_loop_serves_as_well(make_broker: MakeBroker, tmp_path: Path) -> None:
    """uvloop is used when it can be imported, and nothing may depend on it."""
    (tmp_path / "uvloop.py").write_text("raise ImportError('not here')")
    broker = make_broker().start(environment={"PYTHONPATH": str(tmp_path)})
    topic = create_topic(broker.bootstrap)
    messages = [Message(value=b"x" * 50_000)] * 20
    for client in (BY_NAME["confluent-kafka"], BY_NAME["aiokafka"]):
        client.produce(broker.bootstrap, topic, messages)
    for client in (BY_NAME["confluent-kafka"], BY_NAME["kafkajs"]):
        assert len(client.consume(broker.bootstrap, topic, 40)) == 40
    assert broker.terminate() == 0


def test_many_brokers_start_side_by_side(make_broker: MakeBroker) -> None:
    """Port 0 gives each its own port, so test suites can run in parallel."""
    brokers: list[Broker] = [make_broker("--kafka", "127.0.0.1:0") for _ in range(4)]
    threads = [threading.Thread(target=broker.start) for broker in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({broker.port for broker in brokers}) == 4
    for broker in brokers:
        topic = create_topic(broker.bootstrap, "same-name")
        BY_NAME["confluent-kafka"].produce(
            broker.bootstrap, topic, [Message(value=broker.bootstrap.encode())]
        )
        found = BY_NAME["confluent-kafka"].consume(broker.bootstrap, topic, 1)
        assert [message.value for message in found] == [broker.bootstrap.encode()]
