"""Proves that Kafka's own command-line tools work with a broker and with its files."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.clients import CODECS, Message
from tests.e2e.clients.java import Java
from tests.e2e.clients.java.files import partition_folder
from tests.e2e.clients.java.member import JavaMember
from tests.e2e.clients.java.records import JavaClient
from tests.e2e.conftest import MakeTopic
from tests.e2e.ledger import Ledger
from tests.e2e.processes import Broker

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("java")]

Tool = Callable[..., str]
TOPICS = "org.apache.kafka.tools.TopicCommand"
# Where it can be told, no tool gives up on a broker because the machine is busy.
PATIENCE_MS = "30000"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
PRODUCER_LOAD = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_LOAD = "org.apache.kafka.tools.ConsumerPerformance"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture
def tool(java: Java, broker: Broker) -> Tool:
    """Runs a tool against the shared broker."""

    def run(main: str, *words: str, stdin: str = "") -> str:
        return java.tool(main, "--bootstrap-server", broker.bootstrap, *words, stdin=stdin)

    return run


def fill(java: Java, broker: Broker, topic: str, count: int, codec: str = "none") -> None:
    messages = [Message(key=b"key", value=b"value")] * count
    JavaClient(java).produce(broker.bootstrap, topic, messages, codec=codec)


def rows(table: str) -> list[dict[str, str]]:
    """The lines of a table as the tools print it: a line of names, then lines of values."""
    names, *lines = [line.split() for line in table.splitlines() if line.strip()]
    return [dict(zip(names, line, strict=True)) for line in lines]


def test_topics_are_created_described_altered_and_deleted(tool: Tool, group: str) -> None:
    topic = f"tool-{group}"
    shape = ["--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=1000"]
    assert f"Created topic {topic}." in tool(TOPICS, "--create", "--topic", topic, *shape)
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    head, *partitions = tool(TOPICS, "--describe", "--topic", topic).splitlines()
    assert (
        "PartitionCount: 3\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=1000"
        in head
    )
    assert len(partitions) == 3
    assert all("Leader: 0\tReplicas: 0\tIsr: 0" in partition for partition in partitions)
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, "--list").splitlines()


def test_a_group_is_described_and_its_offsets_are_reset(
    tool: Tool, java: Java, broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    fill(java, broker, topic, 10)
    ledger = Ledger(1)
    member = JavaMember(java, "worker", broker.bootstrap, topic, group, "range", ledger)
    member.start()
    ledger.wait_until("reading", lambda: ledger.record_count() == 10)
    reset = ["--group", group, "--reset-offsets", "--topic", topic, "--to-offset", "4", "--execute"]
    groups = partial(tool, GROUPS, "--timeout", PATIENCE_MS)
    assert "only be reset if the group" in groups(*reset)
    (described,) = rows(groups("--describe", "--group", group))
    assert described["CLIENT-ID"] == "worker"
    assert described["LOG-END-OFFSET"] == "10"
    member.stop()
    (new,) = rows(groups(*reset))
    assert new == {"GROUP": group, "TOPIC": topic, "PARTITION": "0", "NEW-OFFSET": "4"}
    (described,) = rows(groups("--describe", "--group", group))
    assert (described["CURRENT-OFFSET"], described["LAG"]) == ("4", "6")
    assert {"GROUP": group, "STATE": "Empty"} in rows(groups("--list", "--state"))
    assert "was successful" in groups("--delete", "--group", group)


def test_settings_are_changed_and_all_described(tool: Tool, make_topic: MakeTopic) -> None:
    topic = make_topic()
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=4000")
    own = tool(CONFIGS, "--describe", *entity)
    assert "retention.ms=4000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms" in own
    everything = tool(CONFIGS, "--describe", "--all", *entity)
    assert "  max.message.bytes=1048588 " in everything
    assert "  retention.ms=4000 " in everything
    of_broker = ["--entity-type", "brokers", "--entity-name", "0"]
    assert "  broker.id=0 " in tool(CONFIGS, "--describe", "--all", *of_broker)


def test_offsets_are_printed(tool: Tool, java: Java, broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    fill(java, broker, topic, 3)
    assert tool(OFFSETS, "--topic", topic).split() == [f"{topic}:0:3", f"{topic}:1:0"]
    earliest = tool(OFFSETS, "--topic", topic, "--time", "earliest")
    assert earliest.split() == [f"{topic}:0:0", f"{topic}:1:0"]


def test_api_versions_are_printed(tool: Tool, broker: Broker) -> None:
    """Each API that we name has a version that the tool can use."""
    printed = tool(API_VERSIONS)
    assert broker.bootstrap in printed
    usable = set(re.findall(r"\t(\w+)\(\d+\): .*\[usable: \d+\]", printed))
    assert {"Produce", "Fetch", "Metadata", "JoinGroup", "DescribeTopicPartitions"} <= usable
    assert "UNKNOWN" not in printed


def test_features_are_printed(tool: Tool) -> None:
    lines = [re.sub(r"\s+", " ", line) for line in tool(FEATURES, "describe").splitlines()]
    level = "4.3-IV0"
    expected = [
        "Feature: group.version SupportedMinVersion: 0 SupportedMaxVersion: 1 "
        "FinalizedVersionLevel: 1 Epoch: ",
        f"Feature: metadata.version SupportedMinVersion: {level} SupportedMaxVersion: {level} "
        f"FinalizedVersionLevel: {level} Epoch: ",
        "Feature: share.version SupportedMinVersion: 0 SupportedMaxVersion: 1 "
        "FinalizedVersionLevel: 1 Epoch: ",
    ]
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_log_directories_are_printed(
    tool: Tool, java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(java, broker, topic, 1)
    printed = tool(LOG_DIRS, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in printed
    assert str(broker.data_dir) in printed


def test_lines_go_in_and_come_out(tool: Tool, make_topic: MakeTopic) -> None:
    topic = make_topic()
    tool(PRODUCER, "--topic", topic, stdin="first line\nsecond line\n")
    limits = ["--max-messages", "2", "--timeout-ms", PATIENCE_MS]
    printed = tool(CONSUMER, "--topic", topic, "--from-beginning", *limits)
    assert printed == "first line\nsecond line\n"


def test_a_burst_of_many_batches_arrives_whole(
    tool: Tool, java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    """Five requests under way per connection, many batches in each, and none lost or doubled."""
    topic, count = make_topic(partitions=3), "50000"
    size = ["--num-records", count, "--record-size", "100", "--throughput", "-1"]
    properties = [f"bootstrap.servers={broker.bootstrap}", "compression.type=zstd"]
    java.tool(PRODUCER_LOAD, "--topic", topic, *size, "--producer-props", *properties)
    ends = tool(OFFSETS, "--topic", topic).split()
    assert sum(int(line.split(":")[2]) for line in ends) == int(count)
    limits = ["--messages", count, "--timeout", PATIENCE_MS]
    printed = tool(CONSUMER_LOAD, "--topic", topic, *limits, "--hide-header")
    assert f", {count}, " in printed


def test_our_segments_are_segments_of_kafka(
    java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    """Kafka's own reader of log files accepts each batch and its CRC, in every codec."""
    topic = make_topic()
    for codec in CODECS:
        fill(java, broker, topic, 4, codec)
    (segment,) = partition_folder(java, broker, topic, 0).glob("*.log")
    printed = java.tool(DUMP, "--print-data-log", "--files", str(segment))
    batches = [line for line in printed.splitlines() if line.startswith("baseOffset: ")]
    assert all(" magic: 2 " in batch and "isvalid: true" in batch for batch in batches)
    codecs = [match for batch in batches for match in re.findall(r"compresscodec: (\w+)", batch)]
    assert list(dict.fromkeys(codecs)) == list(CODECS)
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", printed, re.M)]
    assert offsets == list(range(4 * len(CODECS)))
    assert printed.count("key: key payload: value") == len(offsets)
