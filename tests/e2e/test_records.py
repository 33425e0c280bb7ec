"""Proves that what one client writes, every other client reads unchanged, in every codec."""

import itertools

import pytest

from penstock.records.batch import parse_header
from penstock.records.compression import Codec
from tests.e2e.clients import APPEND_TIME, CREATE_TIME, Client, Message
from tests.e2e.clients.everyone import BY_NAME, EVERYONE
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.e2e.wire import Wire

# kcat's command line has a byte for "no value" but none for an empty one, so the shared messages
# use non-empty text; what only libraries can say has tests of its own below.
MESSAGES = (
    Message(key=b"plain", value=b"value"),
    Message(key=b"headers", value=b"value", headers=(("trace", b"abc"), ("empty", b""))),
    Message(key=None, value=b"no key"),
    Message(key=b"tombstone", value=None),
    Message(key=b"text", value="Grüße, 世界".encode()),
    Message(key=b"long", value=b"x" * 20_000),
)
LIBRARIES = [client for client in EVERYONE if client.name != "kcat"]


def payload(message: Message) -> tuple[object, ...]:
    return message.key, message.value, message.headers


def stored_codecs(broker: Broker, topic: str) -> set[Codec]:
    """How the batches in the log are compressed: a client may quietly send them plain."""
    with Wire(broker.connect()) as wire:
        records = bytes(wire.fetch(topic, 0).records)
    position, found = 0, set()
    while position < len(records):
        header = parse_header(records, position)
        found.add(header.codec)
        position += header.size
    return found


WRITERS = [
    pytest.param(client, codec, id=f"{client.name}-{codec}")
    for client in EVERYONE
    for codec in sorted(client.codecs)
]


@pytest.mark.parametrize(("writer", "codec"), WRITERS)
def test_every_reader_gets_what_a_writer_sent(
    broker: Broker, make_topic: MakeTopic, writer: Client, codec: str
) -> None:
    topic = make_topic()
    writer.produce(broker.bootstrap, topic, MESSAGES, codec=codec)
    assert Codec[codec.upper()] in stored_codecs(broker, topic)
    for reader in (client for client in EVERYONE if codec in client.codecs):
        found = reader.consume(broker.bootstrap, topic, len(MESSAGES))
        assert [payload(message) for message in found] == [payload(m) for m in MESSAGES], (
            f"{reader.name} reads something else"
        )
        assert [message.offset for message in found] == list(range(len(MESSAGES)))


@pytest.mark.parametrize("writer", LIBRARIES, ids=lambda client: client.name)
def test_bytes_of_any_kind_and_length_survive(
    broker: Broker, make_topic: MakeTopic, writer: Client
) -> None:
    messages = [
        Message(key=b"", value=b""),
        Message(key=bytes(range(256)), value=bytes(range(256))),
        Message(key=b"large", value=b"\x00\xff" * 300_000),
    ]
    # The other libraries refuse to send these; all can read them.
    if writer.name == "confluent-kafka":
        messages.append(Message(key=None, value=None, headers=(("nothing", None),)))
    topic = make_topic()
    writer.produce(broker.bootstrap, topic, messages)
    for reader in (BY_NAME["confluent-kafka"], BY_NAME["aiokafka"], BY_NAME["kafka-python"]):
        found = reader.consume(broker.bootstrap, topic, len(messages))
        assert [payload(message) for message in found] == [payload(m) for m in messages]


@pytest.mark.parametrize("writer", LIBRARIES, ids=lambda client: client.name)
def test_the_producer_chooses_the_timestamp(
    broker: Broker, make_topic: MakeTopic, writer: Client
) -> None:
    topic = make_topic(retention_ms="-1")
    chosen = [1_600_000_000_000 + number for number in range(3)]
    messages = [Message(value=b"x", timestamp_ms=timestamp) for timestamp in chosen]
    writer.produce(broker.bootstrap, topic, messages)
    for reader in EVERYONE:
        found = reader.consume(broker.bootstrap, topic, 3)
        assert [message.timestamp_ms for message in found] == chosen, reader.name
        assert {message.timestamp_type for message in found} == {CREATE_TIME}, reader.name


@pytest.mark.parametrize("writer", LIBRARIES, ids=lambda client: client.name)
def test_the_broker_stamps_when_the_topic_says_so(
    broker: Broker, make_topic: MakeTopic, writer: Client
) -> None:
    """LogAppendTime rewrites the header and its CRC, so every reader must still accept it."""
    topic = make_topic(message_timestamp_type="LogAppendTime")
    long_ago = [Message(value=b"x", timestamp_ms=1_000 + number) for number in range(3)]
    writer.produce(broker.bootstrap, topic, long_ago, codec="gzip")
    for reader in EVERYONE:
        found = reader.consume(broker.bootstrap, topic, 3)
        assert {message.timestamp_type for message in found} == {APPEND_TIME}, reader.name
        assert all((message.timestamp_ms or 0) > 1_700_000_000_000 for message in found)


@pytest.mark.parametrize("reader", EVERYONE, ids=lambda client: client.name)
def test_reading_from_inside_a_batch(broker: Broker, make_topic: MakeTopic, reader: Client) -> None:
    """The broker returns the whole batch; the client must see only what it asked for."""
    topic = make_topic()
    messages = [Message(value=str(number).encode()) for number in range(100)]
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, messages, codec="gzip")
    found = reader.consume(broker.bootstrap, topic, 40, offset=60)
    assert [message.offset for message in found] == list(range(60, 100))
    assert [message.value for message in found] == [message.value for message in messages[60:]]


def test_a_codec_chosen_by_the_topic_wins(broker: Broker, make_topic: MakeTopic) -> None:
    for codec, writer in itertools.product(("gzip", "zstd", "uncompressed"), ("none", "lz4")):
        topic = make_topic(compression_type=codec)
        BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, MESSAGES, codec=writer)
        found = BY_NAME["aiokafka"].consume(broker.bootstrap, topic, len(MESSAGES))
        assert [payload(message) for message in found] == [payload(m) for m in MESSAGES]
