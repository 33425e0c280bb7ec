"""Proves that details of many requests are answered as Apache Kafka answers them."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from penstock.protocol.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.kafka.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.records.batch import parse_header
from tests.e2e.beside_kafka import (
    RECORDS,
    Brokers,
    ask,
    described,
    from_both,
    on_both,
    own_id,
    say,
    talk,
)
from tests.e2e.topics import create_topic
from tests.e2e.wire import Wire, connect
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.timeout(180)]

NONE = ErrorCode.NONE
LATEST = -1
FAR = 99
TOPIC, BROKER, GROUP = 2, 4, 32
ALL_BROKERS = ""
SET, DELETE = 0, 1
DYNAMIC_FOR_ONE, DYNAMIC_FOR_ALL = 2, 3
HEARD_TIMEOUT_S = 30.0
# Numbers, which brokers bound, and texts.
SHARE_SETTINGS = (
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
)
SHARE_TEXTS = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
)
SHARE_BROKER_SETTINGS = (
    "group.share.assignors",
    "group.share.max.size",
    "group.share.max.share.sessions",
    "share.coordinator.append.linger.ms",
    "share.coordinator.load.buffer.size",
    "share.coordinator.snapshot.update.records.per.snapshot",
    "share.coordinator.state.topic.compression.codec",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.threads",
    "share.coordinator.write.timeout.ms",
    "share.fetch.purgatory.purge.interval.requests",
)
# Far less than the five minutes between two rounds of all upkeep.
COMPACTION_TIMEOUT_S = 120.0


# Offsets


def listed(bootstrap: str, topic: str, *topics: tuple[str, list[int]], epoch: int = -1) -> Any:
    """The codes and offsets, by whether it is our topic and by partition."""
    asked = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(
                    partition_index=index, timestamp=LATEST, current_leader_epoch=epoch
                )
                for index in indexes
            ],
        )
        for name, indexes in topics
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=asked)
    answer = say(bootstrap, ApiKey.LIST_OFFSETS, 7, request)
    return sorted(
        (found.name == topic, each.partition_index, each.error_code, each.offset)
        for found in answer.topics
        for each in found.partitions
    )


def test_a_partition_that_is_named_twice_is_told_once_as_an_error(brokers: Brokers) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        return (
            listed(bootstrap, topic, (topic, [0, 0])),
            listed(bootstrap, topic, (topic, [0]), (topic, [0])),
            listed(bootstrap, topic, (topic, [0]), (topic, [1, 1])),
            listed(bootstrap, topic, ("no-such", [0, 0, 1])),
        )

    twice = ErrorCode.INVALID_REQUEST
    assert on_both(brokers, converse) == (
        [(True, 0, twice, -1)],
        [(True, 0, twice, -1)],
        [(True, 0, NONE, RECORDS), (True, 1, twice, -1)],
        [(False, 0, twice, -1), (False, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)],
    )


def test_an_epoch_of_the_future_is_unknown(brokers: Brokers) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        places = [
            OffsetForLeaderPartition(partition=index, current_leader_epoch=FAR, leader_epoch=0)
            for index in (0, 0, 5)
        ]
        asked = [OffsetForLeaderTopic(topic=topic, partitions=places)]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=asked)
        answer = say(bootstrap, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
        ends = [(each.error_code, each.end_offset) for each in answer.topics[0].partitions]
        return ends, listed(bootstrap, topic, (topic, [0, 5]), epoch=FAR)

    ends, offsets = on_both(brokers, converse)
    unknown, missing = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ends == [(unknown, -1), (unknown, -1), (missing, -1)]
    assert offsets == [(True, 0, unknown, -1), (True, 5, missing, -1)]


# Fetch sessions


class Session:
    """A fetch session over one partition of a topic that is asked for by name or by id."""

    def __init__(self, bootstrap: str, wire: Wire, topic: str, version: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.version = version
        self._wire = wire
        self._id = 0
        self._epoch = 0

    def fetch(self, *wanted: dict[str, Any], forgotten: tuple[dict[str, Any], ...] = ()) -> Any:
        """The answers' error codes and high watermarks."""
        place = FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=0,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(partitions=[place], **name) for name in wanted],
            forgotten_topics_data=[ForgottenTopic(partitions=[0], **name) for name in forgotten],
            rack_id="",
        )
        (answer,) = talk(self._wire, ask(ApiKey.FETCH, self.version, request))
        self._id, self._epoch = answer.session_id, self._epoch + 1
        partitions = [each for topic in answer.responses for each in topic.partitions]
        codes = [(each.error_code, each.high_watermark) for each in partitions]
        return answer.error_code, answer.session_id != 0, codes

    def name(self) -> dict[str, Any]:
        """How the topic of today is asked for."""
        if self.version < 13:
            return {"topic": self.topic}
        return {"topic_id": self._metadata().topic_id}

    def _metadata(self) -> Any:
        asked = [MetadataRequestTopic(name=self.topic)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return say(self.bootstrap, ApiKey.METADATA, 12, request).topics[0]

    def delete_topic(self) -> None:
        request = DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=30_000)
        answer = say(self.bootstrap, ApiKey.DELETE_TOPICS, 5, request)
        assert answer.responses[0].error_code == NONE
        wait_until("the deletion", lambda: self._metadata().error_code != NONE, HEARD_TIMEOUT_S)

    def make_topic_again(self) -> None:
        create_topic(self.bootstrap, self.topic)

        def has_leader() -> bool:
            # Only a broker that leads it can be fetched from.
            with connect(self.bootstrap) as wire:
                return bool(wire.fetch(self.topic, 0).error_code == NONE)

        wait_until("a leader", has_leader, HEARD_TIMEOUT_S)


@pytest.mark.parametrize("version", [12, 13, 17])
def test_a_session_hears_that_its_topic_is_gone_and_that_it_is_another_one(
    brokers: Brokers, version: int
) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        with connect(bootstrap) as wire:
            session = Session(bootstrap, wire, topic, version)
            old = session.name()
            said = [session.fetch(old)]
            session.delete_topic()
            said += [session.fetch(), session.fetch()]
            session.make_topic_again()
            new = session.name()
            said += [session.fetch(), session.fetch(new)]
            said.append(session.fetch(forgotten=(old,) if old != new else ()))
            with connect(bootstrap) as other:
                said.append(Session(bootstrap, other, topic, version).fetch(old))
            return said

    said = on_both(brokers, converse)
    gone = (NONE, True, [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)])
    assert said[:3] == [(NONE, True, [(NONE, RECORDS)]), gone, gone]
    if version >= 13:
        another = (ErrorCode.INCONSISTENT_TOPIC_ID, -1)
        assert said[3:5] == [(NONE, True, [another]), (NONE, True, [another, (NONE, 0)])]
        assert said[6] == (NONE, True, [(ErrorCode.UNKNOWN_TOPIC_ID, -1)])


# Producers, directories, resources


def test_producers_are_described_of_topics_that_exist(brokers: Brokers) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        asked = [
            TopicRequest(name=topic, partition_indexes=[0, 0, 5]),
            TopicRequest(name="no-such", partition_indexes=[0]),
            TopicRequest(name="a b", partition_indexes=[0]),
        ]
        request = DescribeProducersRequest(topics=asked)
        answer = say(bootstrap, ApiKey.DESCRIBE_PRODUCERS, 0, request)
        return [
            (each.partition_index, each.error_code, each.active_producers)
            for found in answer.topics
            for each in found.partitions
        ]

    codes = [code for _, code, _ in on_both(brokers, converse)]
    missing, bad = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [NONE, NONE, missing, missing, bad]


def test_a_replica_can_be_moved_only_to_where_it_is(brokers: Brokers) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        described = say(bootstrap, ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
        (own,) = (each.log_dir for each in described.results)

        def moved(*paths: str) -> Any:
            topics = [
                AlterReplicaLogDirTopic(name=topic, partitions=[0, 5]),
                AlterReplicaLogDirTopic(name="no-such", partitions=[0]),
            ]
            dirs = [AlterReplicaLogDir(path=path, topics=topics) for path in paths]
            request = AlterReplicaLogDirsRequest(dirs=dirs)
            answer = say(bootstrap, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
            return sorted(
                (found.topic_name == topic, each.partition_index, each.error_code)
                for found in answer.results
                for each in found.partitions
            )

        ways = (own,), (f"{own}/",), ("/nowhere",), ("nowhere",), ("/nowhere", own), ()
        return own.startswith("/"), [moved(*way) for way in ways]

    is_absolute, (stayed, *_) = on_both(brokers, converse)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert is_absolute
    assert stayed == [(False, 0, missing), (True, 0, NONE), (True, 5, missing)]


@pytest.mark.parametrize("types", [[], [2], [4], [8], [16], [32], [4, 8], [0], [1], [4, 99]])
def test_resources_with_settings_are_listed_by_type(brokers: Brokers, types: list[int]) -> None:
    def converse(bootstrap: str, topic: str) -> Any:
        request = ListConfigResourcesRequest(resource_types=types)
        answer = say(bootstrap, ApiKey.LIST_CONFIG_RESOURCES, 1, request)
        named = [(each.resource_type, each.resource_name) for each in answer.config_resources]
        return answer.error_code, sorted({kind for kind, _ in named}), (2, topic) in named

    code, kinds, has_topic = on_both(brokers, converse)
    known = not set(types) & {0, 1, 99}
    assert code == (NONE if known else ErrorCode.UNSUPPORTED_VERSION)
    assert set(kinds) == (set(types or [2, 4, 8]) & {2, 4, 8} if known else set())
    assert has_topic == (2 in kinds)


# Settings


def edited(bootstrap: str, broker: str, name: str, value: str | None) -> int:
    """The code; without a value the setting is taken back."""
    operation = SET if value is not None else DELETE
    change = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = say(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    code: int = answer.error_code
    return code


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.kerberos.min.time.before.relogin", "100"),
        ("sasl.kerberos.min.time.before.relogin", "soon"),
        ("sasl.kerberos.service.name", "kafka"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("ssl.keystore.location", "/nowhere"),
        ("num.replica.fetchers", "2"),
        ("remote.log.reader.threads", "7"),
        ("background.threads", "12"),
        ("log.cleaner.io.buffer.size", "600000"),
        ("config.providers", ""),
        ("node.id", "9"),
    ],
)
def test_settings_without_a_meaning_here_are_kept(brokers: Brokers, name: str, value: str) -> None:
    def converse(bootstrap: str) -> Any:
        own = own_id(bootstrap)
        codes = []
        kept: list[Any] = []
        for broker, source in ((own, DYNAMIC_FOR_ONE), (ALL_BROKERS, DYNAMIC_FOR_ALL)):
            codes.append(edited(bootstrap, broker, name, value))
            if codes[-1] == NONE:

                def found(broker: str = broker) -> Any:
                    return described(bootstrap, BROKER, broker, name).get(name)

                # A broker of Kafka may hear of a change after it was answered. The source tells a
                # value that was set from a default that is the same.
                def heard(found: Callable[[], Any] = found, source: int = source) -> bool:
                    seen = found()
                    return seen is not None and (seen[0], seen[2]) == (value, source)

                wait_until("the setting", heard, HEARD_TIMEOUT_S)
                kept.append(found())
                codes.append(edited(bootstrap, broker, name, None))
        return codes, kept

    ours, theirs = from_both(brokers, converse)
    assert ours == theirs


def test_settings_of_share_groups_are_shown_with_their_defaults(brokers: Brokers) -> None:
    def converse(bootstrap: str) -> Any:
        of_brokers = [
            f"group.{name.replace('share.', f'share.{bound}')}"
            for name in SHARE_SETTINGS
            for bound in ("", "min.", "max.")
        ]
        return (
            described(bootstrap, GROUP, "no such group", *SHARE_SETTINGS, *SHARE_TEXTS),
            described(bootstrap, BROKER, own_id(bootstrap), *of_brokers, *SHARE_BROKER_SETTINGS),
        )

    ours, theirs = from_both(brokers, converse)
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.session.timeout.ms", "0"),
        ("share.session.timeout.ms", "44999"),
        ("share.session.timeout.ms", "60001"),
        ("share.heartbeat.interval.ms", "4999"),
        ("share.heartbeat.interval.ms", "15000"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.auto.offset.reset", "by_duration:P1DT2H"),
        ("share.auto.offset.reset", "by_duration:-PT1S"),
        ("share.auto.offset.reset", "by_duration:PT1M1H"),
        ("share.isolation.level", "read_committed"),
        ("share.isolation.level", "Read_committed"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.record.lock.duration.ms", "15000"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "99"),
        ("share.partition.max.record.locks", "4001"),
        ("share.renew.acknowledge.enable", "FALSE"),
        ("share.renew.acknowledge.enable", "no"),
        ("share.assignment.interval.ms", "-1"),
        ("share.no.such", "1"),
    ],
)
def test_a_setting_of_a_share_group_is_checked(brokers: Brokers, name: str, value: str) -> None:
    change = AlterableConfig(name=name, config_operation=SET, value=value)
    group = AlterConfigsResource(resource_type=GROUP, resource_name="sharers", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[group], validate_only=True)

    def converse(bootstrap: str) -> Any:
        (answer,) = say(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        return answer.error_code, answer.error_message

    ours, theirs = from_both(brokers, converse)
    assert ours == theirs


def test_the_least_replicas_in_sync_are_told_as_a_setting_of_all_brokers(brokers: Brokers) -> None:
    name = "min.insync.replicas"

    def converse(bootstrap: str, topic: str) -> Any:
        return (
            described(bootstrap, TOPIC, topic, name),
            described(bootstrap, BROKER, own_id(bootstrap), name),
            described(bootstrap, BROKER, ALL_BROKERS, name),
        )

    assert on_both(brokers, converse)[0][name][2] == DYNAMIC_FOR_ALL


@pytest.mark.timeout(400)
def test_no_record_waits_longer_for_its_compaction_than_its_topic_allows(brokers: Brokers) -> None:
    """As far as a setting goes that says how often it is looked for and that may change."""
    backoff = "log.cleaner.backoff.ms"

    def look(address: str) -> None:
        assert edited(address, ALL_BROKERS, backoff, "100") == NONE
        topic = create_topic(
            address,
            cleanup_policy="compact",
            max_compaction_lag_ms="500",
            min_cleanable_dirty_ratio="0.99",
        )
        wait_for_compaction(address, topic)
        assert edited(address, ALL_BROKERS, backoff, None) == NONE

    from_both(brokers, look)


def wait_for_compaction(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def produce(key: bytes) -> None:
        producer.produce(topic, b"value", key, partition=0)
        assert producer.flush(60) == 0

    for _ in range(30):
        produce(b"key")

    def has_few() -> bool:
        # Kafka closes a segment whose time has come only when something is appended.
        produce(b"other key")
        return count_batches(bootstrap, topic, until=30) < 3

    wait_until("a compaction", has_few, COMPACTION_TIMEOUT_S)


def count_batches(bootstrap: str, topic: str, until: int) -> int:
    """Those that begin before an offset; as many as there may be if they can't be read now."""
    count = offset = 0
    with connect(bootstrap) as wire:
        while offset < until:
            records = memoryview(wire.fetch(topic, offset).records)
            if not len(records):
                return until
            while len(records):
                header = parse_header(records)
                count += header.base_offset < until
                offset = header.next_offset
                records = records[header.size :]
    return count


def test_the_first_version_lists_client_metrics_alone(brokers: Brokers) -> None:
    answers = [
        say(address, ApiKey.LIST_CONFIG_RESOURCES, 0, ListConfigResourcesRequest())
        for address in brokers
    ]
    assert answers[0] == answers[1]
