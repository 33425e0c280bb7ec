"""The bare connection: versions are agreed, broken connections replaced, nonsense refused."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.free_ports import HeldPorts
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_request_header, encode_response_header
from penstock.protocol.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

QUESTION = MetadataRequest(topics=None)
Serve = Callable[..., str]


def answered(frame: bytes, *, highest: int, shift: int = 0) -> bytes:
    header, position = decode_request_header(memoryview(frame))
    answer: object
    if header.api_key == ApiKey.API_VERSIONS:
        metadata = ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=highest)
        answer = ApiVersionsResponse(api_keys=[metadata])
    else:
        decode(MetadataRequest, header.api_version, frame, position)
        answer = MetadataResponse(controller_id=header.api_version)
    body = encode_response_header(
        header.api_key, header.api_version, header.correlation_id + shift
    ) + encode(answer, header.api_version)
    return len(body).to_bytes(4, "big") + body


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts brokers that know Metadata only; each connection ends after `answers` answers."""
    with ExitStack() as ends:

        def start(*, highest: int = 13, answers: int = 1000, raw: bytes | None = None) -> str:
            listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
            is_over = threading.Event()

            def work() -> None:
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        if is_over.is_set():
                            return
                        talk(connection, highest, answers, raw)

            # A thread that still waits for this listener when another one has got its number
            # would take that one's connections, so it is woken and ends first.
            def end() -> None:
                is_over.set()
                socket.create_connection(listener.getsockname()).close()
                worker.join(10)

            worker = threading.Thread(target=work, daemon=True)
            worker.start()
            ends.callback(end)
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start


def talk(connection: socket.socket, highest: int, answers: int, raw: bytes | None) -> None:
    for _ in range(answers):
        size = connection.recv(4, socket.MSG_WAITALL)
        if not size:
            return
        frame = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        connection.sendall(answered(frame, highest=highest) if raw is None else raw)


@pytest.mark.parametrize(("highest", "used"), [(13, 13), (9, 9), (99, 13)])
def test_the_newest_common_version_is_spoken(serve: Serve, highest: int, used: int) -> None:
    with KafkaConnection(serve(highest=highest), timeout_s=5) as connection:
        assert connection.ask(QUESTION, MetadataResponse).controller_id == used


def test_a_broken_connection_is_opened_again(serve: Serve) -> None:
    with KafkaConnection(serve(answers=2), timeout_s=5) as connection:
        for _ in range(3):
            connection.ask(QUESTION, MetadataResponse)


def test_the_next_address_is_asked_when_one_is_dead(serve: Serve) -> None:
    with HeldPorts() as ports:
        (dead,) = ports.take(1)
        with KafkaConnection(f"127.0.0.1:{dead}, {serve()}", timeout_s=30) as connection:
            connection.ask(QUESTION, MetadataResponse)


def test_nobody_there_is_told_at_once() -> None:
    with HeldPorts() as ports:
        (dead,) = ports.take(1)
        with pytest.raises(BrokerUnreachable, match=f"No broker answers at 127.0.0.1:{dead}: conn"):
            KafkaConnection(f"127.0.0.1:{dead}", timeout_s=30).ask(QUESTION, MetadataResponse)


def test_a_silent_broker_is_given_up_after_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BrokerUnreachable, match=r"0\.2 s"):
            KafkaConnection(address, timeout_s=0.2).ask(QUESTION, MetadataResponse)


def test_a_call_that_the_broker_does_not_offer_is_named(serve: Serve) -> None:
    with (
        KafkaConnection(serve(), timeout_s=5) as connection,
        pytest.raises(ClientError, match="does not offer the call 'unregister broker'"),
    ):
        connection.ask(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka"),
        (b"\0\0\0\2ab", "makes no sense"),
        (b"\0\0\0\6\0\0\0\x63ab", "makes no sense"),
    ],
)
def test_other_protocols_are_told_apart(serve: Serve, raw: bytes, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        KafkaConnection(serve(raw=raw), timeout_s=5).ask(QUESTION, MetadataResponse)
