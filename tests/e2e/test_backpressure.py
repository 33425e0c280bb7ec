"""Proves that neither slow readers, nor floods, nor liars make the broker grow without limit."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.metadata import MetadataRequest
from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.processes import Broker
from tests.e2e.stopwatch import check_quick, seconds_of
from tests.e2e.wire import Wire, fetch_frame, frame, produce_frame

MIB = 1 << 20
# A starved client waits for as long as the others stay. A busy machine is slow, but not forever.
ANSWER_TIMEOUT_S = 60.0
METADATA_VERSION = 9


class Watch:
    """Samples the broker's resident memory in the background."""

    def __init__(self, broker: Broker) -> None:
        self.baseline = self.peak = broker.rss_bytes()
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            self.peak = max(self.peak, self._broker.rss_bytes())

    def growth(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.peak - self.baseline


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker().start()


def check_that_it_serves(broker: Broker, topic: str, within_s: float) -> None:
    """An honest producer soon gets its acknowledgement while the others are still there."""

    def produce() -> None:
        with Wire(broker.connect(ANSWER_TIMEOUT_S)) as wire:
            assert wire.produce(topic, b"honest").error_code == ErrorCode.NONE

    check_quick(lambda: seconds_of(produce), within_s)


def await_service_of(connection: socket.socket) -> None:
    """Connections are taken in their order, so the broker has taken all that were made before."""
    connection.sendall(frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=None)))
    Wire(connection).receive_frame()


def test_readers_that_never_read_cost_next_to_nothing(broker: Broker) -> None:
    """They ask for 2 GiB in all and take none of it."""
    topic = create_topic(broker.bootstrap, max_message_bytes=str(2 * MIB))
    with Wire(broker.connect(ANSWER_TIMEOUT_S)) as wire:
        for _ in range(8):
            assert wire.produce(topic, b"x" * MIB).error_code == ErrorCode.NONE
    watch = Watch(broker)
    connections = [broker.connect(ANSWER_TIMEOUT_S) for _ in range(50)]
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.setblocking(False)
        request = fetch_frame(topic, 0, bytes_max=8 * MIB)
        with contextlib.suppress(BlockingIOError):
            for _ in range(5):
                connection.send(request)
    time.sleep(2)
    check_that_it_serves(broker, topic, within_s=2)
    assert watch.growth() < 50 * MIB
    for connection in connections:
        connection.close()


def flood(broker: Broker, request: bytes, until: Callable[[], bool]) -> None:
    """Sends as fast as the broker takes it and never looks at an answer."""
    with contextlib.suppress(OSError), broker.connect(timeout_s=1) as connection:
        while not until():
            with contextlib.suppress(TimeoutError):
                connection.send(request)


@pytest.mark.parametrize(
    "acks", [pytest.param(-1, id="acks=all"), pytest.param(0, id="acks=0", marks=pytest.mark.slow)]
)
def test_a_flood_of_producers_is_held_back(broker: Broker, acks: int) -> None:
    topic = create_topic(broker.bootstrap)
    request = produce_frame(topic, b"x" * 900_000, acks=acks)
    deadline = time.monotonic() + 6
    watch = Watch(broker)
    threads = [
        threading.Thread(target=flood, args=(broker, request, lambda: time.monotonic() > deadline))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watch.growth() < 400 * MIB
    check_that_it_serves(broker, topic, within_s=20)
    assert broker.is_running


def test_liars_about_the_size_of_a_frame_starve_nobody(broker: Broker) -> None:
    """500 connections announce 50 GiB between them; a frame counts by what has arrived of it."""
    topic = create_topic(broker.bootstrap)
    watch = Watch(broker)
    liars = [broker.connect(ANSWER_TIMEOUT_S) for _ in range(500)]
    for liar in liars:
        liar.sendall(struct.pack(">i", 100 * MIB) + bytes(1_000))
    time.sleep(1)
    for _ in range(10):
        check_that_it_serves(broker, topic, within_s=1)
    assert watch.growth() < 40 * MIB
    for liar in liars:
        liar.close()


@pytest.mark.parametrize("size", [-1, 2**31 - 1], ids=["negative", "two gigabytes"])
def test_a_frame_of_impossible_size_closes_the_connection(broker: Broker, size: int) -> None:
    with broker.connect(ANSWER_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", size) + bytes(100))
        assert connection.recv(100) == b""
    assert broker.is_running


def test_a_thousand_idle_connections_cost_little(broker: Broker) -> None:
    watch = Watch(broker)
    connections = [broker.connect(ANSWER_TIMEOUT_S) for _ in range(1_000)]
    await_service_of(connections[-1])
    started = broker.cpu_seconds()
    time.sleep(2)
    assert broker.cpu_seconds() - started < 0.4
    assert watch.growth() < 30 * MIB
    for connection in connections:
        connection.close()
