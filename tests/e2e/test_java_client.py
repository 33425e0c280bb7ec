"""Proves that Apache Kafka's own Java client writes, reads and shares topics on Penstock."""

import threading
import time
from functools import partial

import pytest
from confluent_kafka import Producer

from tests.e2e.clients import APPEND_TIME, CODECS, CREATE_TIME, Message
from tests.e2e.clients.confluent import Confluent
from tests.e2e.clients.java import Java, JavaError
from tests.e2e.clients.java.member import ASSIGNORS, LONG_SESSION_MS, JavaMember
from tests.e2e.clients.java.records import IDEMPOTENT, JavaClient
from tests.e2e.conftest import MakeBroker, MakeTopic, create_topic
from tests.e2e.ledger import Ledger
from tests.e2e.processes import Broker

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
# The first run on a machine downloads Kafka, and one worker must hold the JVM of all these tests.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("java")]

MESSAGES = (
    Message(key=b"plain", value=b"value"),
    Message(key=b"headers", value=b"v", headers=(("trace", b"abc"), ("none", None), ("", b""))),
    Message(key=None, value=None),
    Message(key=b"", value=b""),
    Message(key=bytes(range(256)), value=b"x" * 20_000),
)
LIBRDKAFKA = Confluent()
PARTITIONS = 6
# Who is not refused asks again for a minute.
REFUSED_WITHIN_S = 30.0


@pytest.fixture
def client(java: Java) -> JavaClient:
    return JavaClient(java)


def payload(message: Message) -> tuple[object, ...]:
    return message.key, message.value, message.headers


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_an_idempotent_producer_wrote(
    broker: Broker, make_topic: MakeTopic, client: JavaClient, codec: str
) -> None:
    topic = make_topic()
    offsets = client.produce(broker.bootstrap, topic, MESSAGES, codec=codec)
    assert offsets == list(range(len(MESSAGES)))
    found = LIBRDKAFKA.consume(broker.bootstrap, topic, len(MESSAGES))
    assert [payload(message) for message in found] == [payload(each) for each in MESSAGES]


@pytest.mark.parametrize("codec", CODECS)
def test_the_consumer_reads_what_librdkafka_wrote(
    broker: Broker, make_topic: MakeTopic, client: JavaClient, codec: str
) -> None:
    topic = make_topic()
    LIBRDKAFKA.produce(broker.bootstrap, topic, MESSAGES, codec=codec)
    found = client.consume(broker.bootstrap, topic, len(MESSAGES))
    assert [payload(message) for message in found] == [payload(each) for each in MESSAGES]
    assert [message.offset for message in found] == list(range(len(MESSAGES)))
    assert {message.timestamp_type for message in found} == {CREATE_TIME}


def test_the_consumer_accepts_what_the_broker_stamped(
    broker: Broker, make_topic: MakeTopic, client: JavaClient
) -> None:
    """LogAppendTime rewrites a batch's header and CRC, and the client checks the CRC."""
    topic = make_topic(message_timestamp_type="LogAppendTime")
    client.produce(broker.bootstrap, topic, MESSAGES, codec="lz4")
    found = client.consume(broker.bootstrap, topic, len(MESSAGES))
    assert {message.timestamp_type for message in found} == {APPEND_TIME}


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_the_consumer_reads_what_the_broker_compressed(
    broker: Broker, make_topic: MakeTopic, client: JavaClient, codec: str
) -> None:
    """Clients differ in which frames they take: Java's refuses an LZ4 frame with linked blocks."""
    topic = make_topic(compression_type=codec)
    LIBRDKAFKA.produce(broker.bootstrap, topic, MESSAGES)
    found = client.consume(broker.bootstrap, topic, len(MESSAGES))
    assert [payload(message) for message in found] == [payload(each) for each in MESSAGES]


def test_a_time_is_sought(broker: Broker, make_topic: MakeTopic, client: JavaClient) -> None:
    """The time lies inside a compressed batch, so the broker has to look at its records."""
    topic = make_topic(retention_ms="-1")
    times = [1_700_000_000_000 + 1000 * number for number in range(20)]
    messages = [Message(value=b"x", timestamp_ms=time_ms) for time_ms in times]
    client.produce(broker.bootstrap, topic, messages, codec="gzip")
    found = client.consume(broker.bootstrap, topic, 8, from_ms=times[12] - 1)
    assert [message.timestamp_ms for message in found] == times[12:]
    assert [message.offset for message in found] == list(range(12, 20))


def test_read_committed_reads_plain_records(
    broker: Broker, make_topic: MakeTopic, client: JavaClient
) -> None:
    topic = make_topic()
    client.produce(broker.bootstrap, topic, MESSAGES)
    committed = {"isolation.level": "read_committed"}
    found = client.consume(broker.bootstrap, topic, len(MESSAGES), settings=committed)
    assert [message.offset for message in found] == list(range(len(MESSAGES)))


def test_an_offset_out_of_range_is_told(
    broker: Broker, make_topic: MakeTopic, client: JavaClient
) -> None:
    topic = make_topic()
    client.produce(broker.bootstrap, topic, MESSAGES)
    with pytest.raises(JavaError, match="OffsetOutOfRangeException"):
        client.consume(broker.bootstrap, topic, 1, offset=99)
    reset = {"auto.offset.reset": "earliest"}
    found = client.consume(broker.bootstrap, topic, 1, offset=99, settings=reset)
    assert found[0].offset == 0


class Load(threading.Thread):
    """Writes to each partition, round by round, for as long as a test needs records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        # What is sent again after the death of a leader must not be there twice.
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
        self.producer = Producer(settings)
        self.topic = topic
        self.rounds = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            for partition in range(PARTITIONS):
                self.producer.produce(self.topic, b"x", partition=partition)
            assert self.producer.flush(60) == 0
            self.rounds += 1

    def finish(self) -> int:
        """How many records each partition has got."""
        self.stopping.set()
        self.join(timeout=90)
        assert not self.is_alive()
        return self.rounds


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_two_members_lose_and_double_nothing(
    broker: Broker, make_topic: MakeTopic, group: str, java: Java, strategy: str
) -> None:
    """One member joins the other under load and leaves again; each record is read once."""
    topic = make_topic(partitions=PARTITIONS)
    ledger = Ledger(PARTITIONS)
    load = Load(broker.bootstrap, topic)
    load.start()
    stays, leaves = (
        JavaMember(java, name, broker.bootstrap, topic, group, strategy, ledger)
        for name in ("stays", "leaves")
    )
    stays.start()
    ledger.wait_until_balanced(1)
    leaves.start()
    ledger.wait_until_balanced(2)
    ledger.wait_until("reading by both", lambda: ledger.read_by["leaves"] > 0)
    leaves.stop()
    ledger.wait_until_balanced(1)
    rounds = load.finish()
    total = PARTITIONS * rounds
    ledger.wait_until("reading everything", lambda: ledger.record_count() >= total)
    stays.stop()
    assert ledger.violations == []
    expected = list(range(rounds))
    assert dict(ledger.offsets) == dict.fromkeys(range(PARTITIONS), expected)


def test_a_static_member_comes_back_without_a_rebalance(
    broker: Broker, make_topic: MakeTopic, group: str, java: Java
) -> None:
    topic = make_topic(partitions=4)
    ledger = Ledger(4)

    def member(name: str) -> JavaMember:
        # Longer than it is away, however slow the machine is.
        session = {"session_timeout_ms": LONG_SESSION_MS}
        settings = {"group_instance_id": f"instance-{name}", **session}
        place = (broker.bootstrap, topic, group)
        return JavaMember(java, name, *place, "range", ledger, **settings)

    stays, goes = member("stays"), member("goes")
    stays.start()
    goes.start()
    ledger.wait_until_balanced(2)
    before, share = ledger.assignments["stays"], ledger.owned_by("goes")
    goes.stop()
    returned = member("goes")
    returned.start()
    ledger.wait_until_balanced(2)
    assert ledger.owned_by("goes") == share
    assert ledger.assignments["stays"] == before
    returned.stop()
    stays.stop()
    assert ledger.violations == []


def test_a_writer_and_a_reader_live_through_kills(
    make_broker: MakeBroker, group: str, java: Java, client: JavaClient
) -> None:
    """The producer sends again what was under way, and its sequence numbers keep that single."""
    broker = make_broker().start()
    topic = create_topic(broker.bootstrap)
    ledger = Ledger(1)
    reader = JavaMember(java, "reader", broker.bootstrap, topic, group, "range", ledger)
    reader.start()
    ledger.wait_until_balanced(1)
    messages = [Message(value=str(number).encode()) for number in range(1000)]
    acknowledged: list[int] = []

    def write() -> None:
        acknowledged.extend(client.produce(broker.bootstrap, topic, messages, pause_ms=2))

    writing = threading.Thread(target=write)
    writing.start()
    for read_so_far in (100, 400):
        ledger.wait_until("some reading", partial(has_read, ledger, read_so_far))
        broker.kill()
        broker.start()
    writing.join()
    assert acknowledged == list(range(1000))
    ledger.wait_until("reading everything", lambda: ledger.record_count() >= 1000)
    reader.stop()
    assert ledger.violations == []
    assert ledger.offsets[0] == list(range(1000))
    found = LIBRDKAFKA.consume(broker.bootstrap, topic, 1000)
    assert [message.value for message in found] == [message.value for message in messages]


def has_read(ledger: Ledger, count: int) -> bool:
    return ledger.record_count() >= count


def test_transactions_are_refused_at_once(broker: Broker, java: Java) -> None:
    """The error is a fatal one: the producer gives up instead of asking again for a minute."""
    began = time.monotonic()
    settings = {**IDEMPOTENT, "transactional.id": "payments"}
    first, second = java.call("begin_transaction", broker.bootstrap, settings=settings)
    assert time.monotonic() - began < REFUSED_WITHIN_S
    assert first["type"] == "TransactionalIdAuthorizationException"
    assert second["type"] == "KafkaException"
    assert "error state" in second["message"]
