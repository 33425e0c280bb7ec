"""A link moves whole frames in versions that both sides speak, and fails in time."""

import socket
import threading

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.errors import Malformed
from penstock.client.wire.link import Link, after, joined, send_all
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.wire.fake_broker import (
    HANG_UP,
    PATIENCE_S,
    SILENCE,
    SIZE,
    FakeBroker,
    FakeCluster,
    fetched,
)

QUESTION = MetadataRequest(topics=None)


def link_to(broker: FakeBroker, timeout_s: float = 5.0) -> Link:
    return Link.open(
        "127.0.0.1",
        broker.port,
        name=broker.address,
        connect_timeout_s=timeout_s,
        answer_timeout_s=timeout_s,
    )


def test_the_newest_common_version_within_the_limit_is_spoken() -> None:
    with FakeCluster(versions={ApiKey.METADATA: (3, 9)}) as cluster:
        link = link_to(cluster[1])
        link.ask(QUESTION, MetadataResponse)
        link.ask(QUESTION, MetadataResponse, version_max=5)
        assert [one.version for one in cluster[1].asked] == [9, 5]
        with pytest.raises(ClientError, match="does not offer the call 'metadata'"):
            link.ask(QUESTION, MetadataResponse, version_max=2)
        link.close()


def test_records_of_an_answer_are_a_view_into_its_frame() -> None:
    records = bytes(100_000)
    with FakeCluster() as cluster:
        cluster[1].handlers[ApiKey.FETCH] = lambda request, version: fetched(records)
        link = link_to(cluster[1])
        found = link.ask(FetchRequest(), FetchResponse).responses[0].partitions[0].records
        assert isinstance(found, memoryview)
        assert isinstance(found.obj, bytes)
        assert len(found.obj) > len(found) == len(records)
        link.close()


def test_an_answer_that_comes_in_pieces_is_put_together() -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours, name="peer")
    link.set_timeout(5.0)
    link._versions[ApiKey.METADATA] = (0, 13)
    answers: list[MetadataResponse] = []
    asker = threading.Thread(
        target=lambda: answers.append(link.ask(QUESTION, MetadataResponse, version_max=0))
    )
    asker.start()
    theirs.recv(1024)
    body = b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0\0\0"
    for piece in (SIZE.pack(len(body))[:2], SIZE.pack(len(body))[2:] + body[:3], body[3:]):
        theirs.sendall(piece)
    asker.join(PATIENCE_S)
    assert answers[0].brokers == []
    link.close()
    theirs.close()


@pytest.mark.parametrize(
    ("framed", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka"),
        (b"\x7f\xff\xff\xff", "does not speak Kafka"),
        (b"\0\0\0\0", "does not speak Kafka"),
        (b"\0\0\0\2ab", "makes no sense: a response header is cut short"),
        (b"\0\0\0\6\0\0\0\x63\0a", "makes no sense: it answers another request"),
        (b"\0\0\0\6\0\0\0\2\0a", "makes no sense"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(framed: bytes, said: str) -> None:
    with FakeCluster() as cluster:
        link = link_to(cluster[1])
        cluster[1].damage = lambda _: framed
        with pytest.raises(Malformed, match=said):
            link.ask(QUESTION, MetadataResponse)
        assert not link.is_idle


def test_silence_ends_at_the_time_limit() -> None:
    with FakeCluster() as cluster:
        link = link_to(cluster[1])
        link.set_timeout(0.1)
        cluster[1].handlers[ApiKey.METADATA] = lambda request, version: SILENCE
        with pytest.raises(TimeoutError):
            link.ask(QUESTION, MetadataResponse)
        assert not link.is_idle
        link.close()


def test_an_answer_that_never_comes_to_its_end_is_given_up() -> None:
    with FakeCluster() as cluster:
        link = link_to(cluster[1])
        link.set_timeout(0.1)
        cluster[1].damage = lambda framed: framed[:-1]
        with pytest.raises(TimeoutError):
            link.ask(QUESTION, MetadataResponse)
        link.close()


def test_a_closed_connection_is_an_error_of_the_network() -> None:
    with FakeCluster() as cluster:
        link = link_to(cluster[1])
        cluster[1].handlers[ApiKey.METADATA] = lambda request, version: HANG_UP
        with pytest.raises(ConnectionResetError):
            link.ask(QUESTION, MetadataResponse)
        link.close()


def test_abort_ends_the_wait_of_another_thread() -> None:
    with FakeCluster() as cluster:
        link = link_to(cluster[1], timeout_s=60)
        cluster[1].handlers[ApiKey.METADATA] = lambda request, version: SILENCE
        failures: list[OSError] = []

        def ask() -> None:
            try:
                link.ask(QUESTION, MetadataResponse)
            except OSError as error:
                failures.append(error)

        asker = threading.Thread(target=ask)
        asker.start()
        link.abort()
        asker.join(PATIENCE_S)
        assert not asker.is_alive()
        assert len(failures) == 1
        link.close()
        link.abort()


def test_small_pieces_are_joined_and_large_ones_stay_where_they_lie() -> None:
    large = bytearray(100_000)
    pieces = joined([b"a", b"b", large, b"c", b"", b"d"])
    assert pieces[0] == b"ab"
    assert pieces[1] is large
    assert pieces[2] == b"cd"
    assert len(pieces) == 3


@pytest.mark.parametrize("sent", [0, 1, 2, 3, 4, 5])
def test_what_is_left_after_a_partial_write(sent: int) -> None:
    left = after([memoryview(b"ab"), memoryview(b"cde")], sent)
    assert b"".join(left) == b"abcde"[sent:]


def test_more_pieces_than_one_call_takes_are_all_sent() -> None:
    ours, theirs = socket.socketpair()
    pieces = [bytes([number % 256]) * 3 for number in range(3_000)]
    sender = threading.Thread(target=send_all, args=(ours, pieces))
    sender.start()
    received = b""
    while len(received) < 9_000:
        received += theirs.recv(65_536)
    sender.join(PATIENCE_S)
    assert received == b"".join(pieces)
    ours.close()
    theirs.close()
