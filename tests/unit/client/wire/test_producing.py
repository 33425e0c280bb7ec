"""A producer writes every batch once and in order whatever leaders answer, or says why not."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import GaveUp, UnknownTopic
from penstock.client.wire.settings import WireSettings
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.records.batch import decode_records
from tests.unit.client.wire.fake_broker import (
    HANG_UP,
    PATIENCE_S,
    SILENCE,
    TOPIC,
    FakeCluster,
    FakeLog,
    at,
    batch,
    begun_since,
    wait_until,
)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(2) as made:
        yield made


@pytest.fixture
def log(cluster: FakeCluster) -> FakeLog:
    """Anyone who is asked writes to it: there is one log, as in a real cluster."""
    made = FakeLog()
    for node in cluster.nodes.values():
        node.handlers[ApiKey.PRODUCE] = made.produce
    return made


def client_of(cluster: FakeCluster, **changes: Any) -> WireCluster:
    settings = {"retry_timeout_s": 10.0} | changes
    return WireCluster(WireSettings(bootstrap=cluster.bootstrap, **settings))


def write(client: WireCluster, count: int, **options: Any) -> None:
    with client.producer(**options) as producer:
        for number in range(count):
            producer.send(at(), bytearray(batch(b"%d-a" % number, b"%d-b" % number)), 2)
        producer.flush()
        assert producer.acknowledged == 2 * count


def written(log: FakeLog) -> list[bytes]:
    return [record.value or b"" for one in log.batches for record in decode_records(one)]


def expected(count: int) -> list[bytes]:
    return [b"%d-%s" % (number, part) for number in range(count) for part in (b"a", b"b")]


def refusal(code: int, **fields: Any) -> ProduceResponse:
    nodes = fields.pop("node_endpoints", [])
    part = PartitionProduceResponse(index=0, error_code=code, **fields)
    topic = TopicProduceResponse(name=TOPIC, partition_responses=[part])
    return ProduceResponse(responses=[topic], node_endpoints=nodes)


def test_everything_is_written_once_and_in_order(cluster: FakeCluster, log: FakeLog) -> None:
    with client_of(cluster) as client:
        write(client, 50)
    assert written(log) == expected(50)
    assert log.values == [(0, 2 * number, 2) for number in range(50)]


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_without_idempotence_batches_carry_no_producer(
    cluster: FakeCluster, log: FakeLog, acks: int
) -> None:
    with client_of(cluster) as client:
        write(client, 20, idempotent=False, acks=acks)
    wait_until(lambda: len(log.headers) == 20)
    assert written(log) == expected(20)
    assert {header[9:12] for header in log.headers} == {(-1, -1, -1)}
    assert cluster[1].requests(ApiKey.INIT_PRODUCER_ID) == []


@pytest.mark.parametrize("code", [5, 6, 7, 13, 19, 20, 56, 2, 100])
@pytest.mark.parametrize("at_batch", [0, 1, 3])
def test_trouble_that_passes_neither_loses_nor_doubles(
    cluster: FakeCluster, log: FakeLog, code: int, at_batch: int
) -> None:
    log.refusals = [*[None] * at_batch, code]
    with client_of(cluster) as client:
        write(client, 12)
    assert written(log) == expected(12)


@pytest.mark.parametrize("at_batch", [0, 1, 4])
def test_a_lost_answer_neither_loses_nor_doubles(
    cluster: FakeCluster, log: FakeLog, at_batch: int
) -> None:
    log.losses = [*[False] * at_batch, True]
    with client_of(cluster) as client:
        write(client, 12)
    assert written(log) == expected(12)


def test_a_duplicate_that_the_leader_only_names_counts_as_written(
    cluster: FakeCluster, log: FakeLog
) -> None:
    log.refusals = [None, 46]
    with client_of(cluster) as client:
        write(client, 3)


@pytest.mark.parametrize("code", [45, 47, 49, 59])
def test_a_leader_that_lost_its_books_is_met_with_a_new_epoch(
    cluster: FakeCluster, log: FakeLog, code: int
) -> None:
    log.refusals = [None, None, code]
    with client_of(cluster) as client:
        write(client, 8)
    assert written(log) == expected(8)
    assert log.values[:3] == [(0, 0, 2), (0, 2, 2), (1, 0, 2)]
    assert log.values[-1] == (1, 10, 2)


def test_a_refused_batch_ends_the_producer_with_a_sentence(
    cluster: FakeCluster, log: FakeLog
) -> None:
    log.refusals = [None, 10]
    with client_of(cluster) as client:
        producer = client.producer()
        producer.send(at(), bytearray(batch(b"a")), 1)
        producer.flush()
        producer.send(at(), bytearray(batch(b"b" * 100)), 1)
        said = r"A batch of 1\d\d bytes \(1 records\) is too large for topic orders.*max.message"
        with pytest.raises(ClientError, match=said):
            producer.flush()
        with pytest.raises(ClientError, match=said):
            producer.send(at(), bytearray(batch(b"c")), 1)
        with pytest.raises(ClientError, match=said):
            producer.close()
        assert producer.acknowledged == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(29), "refused records for partition 0 of topic orders: topic authorization"),
        (refusal(87, error_message="a key is missing"), "topic orders: a key is missing."),
        (ProduceResponse(), "leaves out partition 0 of topic orders"),
        (b"\xff" * 30, "makes no sense"),
    ],
)
def test_what_will_not_pass_is_told(cluster: FakeCluster, answer: object, said: str) -> None:
    cluster[1].handlers[ApiKey.PRODUCE] = lambda request, version: answer
    with client_of(cluster) as client, pytest.raises(ClientError, match=said):
        write(client, 1)


def test_a_batch_that_arrives_damaged_twice_is_refused(cluster: FakeCluster, log: FakeLog) -> None:
    log.refusals = [2, 2]
    with client_of(cluster) as client, pytest.raises(ClientError, match="corrupt message"):
        write(client, 1)


def test_patience_ends_with_a_sentence(cluster: FakeCluster) -> None:
    cluster[1].handlers[ApiKey.PRODUCE] = lambda request, version: refusal(19)
    said = "Gave up on writing to partition 0 of topic orders after 0.3 s.*: not enough replicas."
    with client_of(cluster, retry_timeout_s=0.3) as client, pytest.raises(GaveUp, match=said):
        write(client, 3)


def test_a_topic_that_does_not_exist_is_named(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.wire.deliveries.ABSENCE_S_MAX", 0.1)
    with (
        client_of(cluster) as client,
        pytest.raises(UnknownTopic, match="Topic nope does not exist"),
        client.producer() as producer,
    ):
        producer.send(at(0, "nope"), bytearray(batch(b"a")), 1)


def test_a_broker_that_is_back_after_long_may_not_know_the_topic_at_once(
    cluster: FakeCluster, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.wire.patience.PAUSE_S_MAX", 0.05)
    monkeypatch.setattr("penstock.client.wire.deliveries.ABSENCE_S_MAX", 1.0)
    back_at = time.monotonic() + 1.6
    first_words = [refusal(3)]

    def restarting(request: ProduceRequest, version: int) -> object:
        if time.monotonic() < back_at:
            return HANG_UP
        return first_words.pop(0) if first_words else log.produce(request, version)

    cluster[1].handlers[ApiKey.PRODUCE] = restarting
    with client_of(cluster) as client:
        write(client, 3)
    assert written(log) == expected(3)


def test_a_silent_leader_is_left_after_the_request_time_out(
    cluster: FakeCluster, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.wire.sender.ANSWER_MARGIN_S", 0.1)

    def swallow(request: ProduceRequest, version: int) -> object:
        log.produce(request, version)
        cluster.leaders[0] = (2, 2)
        return SILENCE

    cluster[1].handlers[ApiKey.PRODUCE] = swallow
    with client_of(cluster, request_timeout_s=0.4) as client:
        write(client, 5)
    assert written(log) == expected(5)


def test_a_hint_saves_the_question(cluster: FakeCluster, log: FakeLog) -> None:
    node = NodeEndpoint(node_id=2, host="127.0.0.1", port=cluster[2].port)
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    answer = refusal(6, current_leader=hint, node_endpoints=[node])
    cluster[1].handlers[ApiKey.PRODUCE] = lambda request, version: answer
    with client_of(cluster) as client:
        write(client, 10)
    assert written(log) == expected(10)
    assert len(cluster[1].requests(ApiKey.PRODUCE)) == 1
    assert len(cluster[1].requests(ApiKey.METADATA)) == 1


def test_batches_of_several_partitions_share_a_request(cluster: FakeCluster) -> None:
    cluster.leaders = dict.fromkeys(range(8), (1, 1))
    let_go = threading.Event()

    def take(request: ProduceRequest, version: int) -> ProduceResponse:
        let_go.wait(PATIENCE_S)
        parts = [
            PartitionProduceResponse(index=data.index)
            for topic in request.topic_data
            for data in topic.partition_data
        ]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=parts)]
        )

    cluster[1].handlers[ApiKey.PRODUCE] = take
    with client_of(cluster) as client, client.producer() as producer:
        for number in range(80):
            producer.send(at(number % 8), bytearray(batch(b"x")), 1)
        let_go.set()
        producer.flush()
        assert producer.acknowledged == 80
    sizes = [
        sum(len(topic.partition_data) for topic in one.topic_data)
        for one in cluster[1].requests(ApiKey.PRODUCE)
    ]
    assert sum(sizes) == 80
    assert max(sizes) >= 7
    assert len(sizes) <= 30


def test_what_is_held_is_bounded(cluster: FakeCluster, log: FakeLog) -> None:
    let_go = threading.Event()
    honest = log.produce

    def wait(request: ProduceRequest, version: int) -> object:
        let_go.wait(PATIENCE_S)
        return honest(request, version)

    cluster[1].handlers[ApiKey.PRODUCE] = wait
    one = batch(b"x" * 1000)
    sent = []
    with (
        client_of(cluster) as client,
        client.producer(bytes_in_flight_max=5 * len(one)) as producer,
    ):

        def send() -> None:
            for number in range(20):
                producer.send(at(), bytearray(one), 1)
                sent.append(number)

        sender = threading.Thread(target=send)
        sender.start()
        wait_until(lambda: len(sent) == 5)
        sender.join(0.1)
        assert sent == list(range(5))
        let_go.set()
        sender.join(PATIENCE_S)
        assert sent == list(range(20))


def test_an_error_in_the_block_drops_what_waits_and_ends_the_thread(cluster: FakeCluster) -> None:
    cluster[1].handlers[ApiKey.PRODUCE] = lambda request, version: SILENCE

    def fail_after_a_send(client: WireCluster) -> None:
        with client.producer() as producer:
            producer.send(at(), bytearray(batch(b"x")), 1)
            raise KeyError

    before = threading.enumerate()
    with client_of(cluster) as client, pytest.raises(KeyError):
        fail_after_a_send(client)
    assert [one for one in begun_since(before) if one.name == "produce"] == []


def test_a_broker_that_is_gone_is_waited_for_only_so_long(cluster: FakeCluster) -> None:
    with client_of(cluster, retry_timeout_s=0.5) as client:
        client.partition_count(TOPIC)
        producer = client.producer()
        cluster[1].handlers[ApiKey.PRODUCE] = lambda request, version: HANG_UP
        producer.send(at(), bytearray(batch(b"x")), 1)
        with pytest.raises(ClientError):
            producer.flush()
        producer.close(drop=True)


def test_idempotence_needs_all_acknowledgements(cluster: FakeCluster) -> None:
    with client_of(cluster) as client, pytest.raises(ClientError, match="needs acks=all"):
        client.producer(acks=1)


def test_links_are_left_for_the_next_producer(cluster: FakeCluster, log: FakeLog) -> None:
    with client_of(cluster) as client:
        for _ in range(3):
            write(client, 2)
        assert len(cluster[1]._connections) == 1


def test_a_batch_that_is_none_is_the_callers_mistake(cluster: FakeCluster) -> None:
    with client_of(cluster) as client, client.producer() as producer:
        with pytest.raises(AssertionError, match="count"):
            producer.send(at(), bytearray(batch(b"x")), 2)
        with pytest.raises(AssertionError, match="whole"):
            producer.send(at(), bytearray(batch(b"x") + b"y"), 1)
        with pytest.raises(AssertionError, match="broker's to give"):
            producer.send(at(), bytearray(batch(b"x", base_offset=4)), 1)
