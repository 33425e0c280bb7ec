"""Single records are written soon, where their keys belong, and in batches that the topic takes."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import ClientError, DeliveryFailed
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.records import RecordProducer
from penstock.client.wire.settings import WireSettings
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.kafka.messages.produce import ProduceRequest
from penstock.records.batch import decode_records
from penstock.records.key_hash import partition_of
from tests.unit.client.wire.fake_broker import TOPIC, FakeCluster, FakeLog, wait_until

MESSAGE_TOO_LARGE = 10
PARTITIONS = 7


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


@pytest.fixture
def log(cluster: FakeCluster) -> FakeLog:
    made = FakeLog()
    cluster[1].handlers[ApiKey.PRODUCE] = made.produce
    return made


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[WireCluster]:
    with WireCluster(WireSettings(bootstrap=cluster.bootstrap, retry_timeout_s=10.0)) as made:
        yield made


def written(log: FakeLog) -> list[bytes | None]:
    return [record.value for one in log.batches for record in decode_records(one)]


def limit(cluster: FakeCluster, message_bytes_max: int) -> None:
    """The topic's max.message.bytes, as its broker describes it."""
    value = DescribeConfigsResourceResult(
        name="max.message.bytes", value=str(message_bytes_max), read_only=False, is_sensitive=False
    )
    result = DescribeConfigsResult(resource_type=2, resource_name=TOPIC, configs=[value])
    answer = DescribeConfigsResponse(results=[result])
    cluster[1].handlers[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: answer


def test_one_record_is_written_with_all_it_has(client: WireCluster, log: FakeLog) -> None:
    with RecordProducer(client, TOPIC) as producer:
        producer.send(b"v", key=b"k", headers=(("h", None),), timestamp_ms=5)
    (record,) = decode_records(log.batches[0])
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", None),))
    assert record.timestamp_ms == 5
    assert (producer.sent, producer.delivered, producer.is_new) == (1, 1, False)


def test_many_records_are_written_once_and_in_order(
    cluster: FakeCluster, client: WireCluster, log: FakeLog
) -> None:
    limit(cluster, 1_000_000)
    values = [b"%d" % number for number in range(20_000)]
    with RecordProducer(client, TOPIC) as producer:
        for value in values:
            producer.send(value)
    assert written(log) == values
    assert producer.delivered == len(values)


def test_what_a_slow_sender_has_sent_does_not_wait_for_more(
    client: WireCluster, log: FakeLog
) -> None:
    with RecordProducer(client, TOPIC) as producer:
        producer.send(b"first")
        wait_until(lambda: written(log) == [b"first"])
        producer.send(b"second", partition=0)
        wait_until(lambda: written(log) == [b"first", b"second"])


def test_a_key_decides_the_partition_as_with_librdkafka(
    cluster: FakeCluster, client: WireCluster, log: FakeLog
) -> None:
    cluster.leaders = dict.fromkeys(range(PARTITIONS), (1, 1))
    limit(cluster, 1_000_000)
    keys = [b"%d" % number for number in range(50)]
    # Without idempotence, because the log of the test keeps books about one partition.
    with RecordProducer(client, TOPIC, acks=1) as producer:
        for key in keys:
            producer.send(b"", key=key)
    found: dict[bytes, int] = {}
    requests: list[ProduceRequest] = cluster[1].requests(ApiKey.PRODUCE)
    for request in requests:
        for data in request.topic_data[0].partition_data:
            for record in decode_records(bytes(data.records or b"")):
                found[record.key or b""] = data.index
    assert found == {key: partition_of(key, PARTITIONS) for key in keys}


def test_batches_are_no_larger_than_the_topic_takes(
    cluster: FakeCluster, client: WireCluster, log: FakeLog
) -> None:
    limit(cluster, 1_000)
    with RecordProducer(client, TOPIC) as producer:
        for _ in range(100):
            producer.send(b"x" * 90)
    assert len(written(log)) == 100
    assert max(map(len, log.batches)) <= 1_000


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(client: WireCluster, log: FakeLog, compression: str) -> None:
    with RecordProducer(client, TOPIC, compression=compression) as producer:
        producer.send(b"x" * 10_000)
    assert written(log) == [b"x" * 10_000]
    assert len(log.batches[0]) < 1_000


def test_a_partition_that_is_not_there_is_refused(client: WireCluster, log: FakeLog) -> None:
    with (
        pytest.raises(ClientError, match="no partition 1: it has 1"),
        RecordProducer(client, TOPIC) as producer,
    ):
        producer.send(b"x", partition=1)


def test_what_the_leader_refuses_is_counted(client: WireCluster, log: FakeLog) -> None:
    log.refusals = [MESSAGE_TOO_LARGE]
    with (
        pytest.raises(DeliveryFailed, match=r"1 of 1 records were not delivered.*too large"),
        RecordProducer(client, TOPIC) as producer,
    ):
        producer.send(b"x")
    assert producer.delivered == 0


def test_a_topic_that_has_to_be_made_is_new(
    cluster: FakeCluster, client: WireCluster, log: FakeLog
) -> None:
    def made_when_asked(request: Any, version: int) -> Any:
        answer = cluster.metadata(request, version)
        if not request.allow_auto_topic_creation and not log.batches:
            for topic in answer.topics:
                topic.error_code, topic.partitions = 3, []
        return answer

    cluster[1].handlers[ApiKey.METADATA] = made_when_asked
    with RecordProducer(client, TOPIC) as producer:
        producer.send(b"x")
    assert producer.is_new
    assert written(log) == [b"x"]
