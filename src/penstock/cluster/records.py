"""What the cluster's metadata log holds, keyed so that compaction keeps the last of each key.

Every record carries the whole of what its key names, so that any suffix of the log that starts
with a compacted prefix rebuilds the same state. Keys and values are JSON; a value names its
layout's version, so that a later release can still read it.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from penstock.cluster.topic import Topic
from penstock.model.ids import TopicId, TopicName

VERSION = 1


class TopicStored(NamedTuple):
    """A topic was made, or something about it changed."""

    topic: Topic


class TopicRemoved(NamedTuple):
    """The topic is gone for everyone; its files are not yet."""

    topic_id: TopicId


class FilesDoomed(NamedTuple):
    """The files of this topic are to be removed. Only what is named so is ever removed: a
    directory that the metadata does not know may be all that is left of someone's data."""

    topic_id: TopicId


class FilesRemoved(NamedTuple):
    """Nothing of this topic is left on disk."""

    topic_id: TopicId


class BrokerConfigStored(NamedTuple):
    """All dynamic settings of one broker, or of all brokers when `broker` is empty."""

    broker: str
    configs: Mapping[str, str]


class ProducerIdsTaken(NamedTuple):
    """Every producer id below `next_producer_id` was handed to some broker."""

    next_producer_id: int


ClusterRecord: TypeAlias = (
    TopicStored | TopicRemoved | FilesDoomed | FilesRemoved | BrokerConfigStored | ProducerIdsTaken
)
Json: TypeAlias = dict[str, Any]


class UnreadableRecord(ValueError):
    """A record of the metadata log that this release does not know."""


def to_json(record: ClusterRecord) -> tuple[list[str], Json | None]:
    match record:
        case TopicStored(topic=topic):
            return ["topic", topic.topic_id.hex], _topic_to_json(topic)
        case TopicRemoved(topic_id=topic_id):
            return ["topic", topic_id.hex], None
        case FilesDoomed(topic_id=topic_id):
            return ["doomed-files", topic_id.hex], {"version": VERSION}
        case FilesRemoved(topic_id=topic_id):
            return ["doomed-files", topic_id.hex], None
        case BrokerConfigStored(broker=broker, configs=configs):
            value = {"version": VERSION, "configs": dict(configs)} if configs else None
            return ["broker-config", broker], value
        case ProducerIdsTaken(next_producer_id=next_producer_id):
            return ["producer-ids"], {"version": VERSION, "next": next_producer_id}


def from_json(key: list[str], value: Json | None) -> ClusterRecord:
    if value is not None and value.get("version") != VERSION:
        raise UnreadableRecord(f"metadata record {key} has version {value.get('version')}")
    match key:
        case ["topic", hex_id]:
            return _topic_from_json(TopicId(UUID(hex=hex_id)), value)
        case ["doomed-files", hex_id]:
            topic_id = TopicId(UUID(hex=hex_id))
            return (
                FilesRemoved(topic_id=topic_id) if value is None else FilesDoomed(topic_id=topic_id)
            )
        case ["broker-config", broker]:
            return BrokerConfigStored(broker=broker, configs=value["configs"] if value else {})
        case ["producer-ids"] if value is not None:
            return ProducerIdsTaken(next_producer_id=value["next"])
    raise UnreadableRecord(f"metadata record {key} is of an unknown kind")


class ClusterRecordCodec:
    """The records as key and value of a record in the log."""

    def encode(self, record: ClusterRecord) -> tuple[bytes | None, bytes | None]:
        key, value = to_json(record)
        return _dump(key), None if value is None else _dump(value)

    def decode(self, key: bytes | None, value: bytes | None) -> ClusterRecord:
        if key is None:
            raise UnreadableRecord("metadata record without a key")
        return from_json(json.loads(key), None if value is None else json.loads(value))


def _topic_to_json(topic: Topic) -> Json:
    return {
        "version": VERSION,
        "name": topic.name,
        "partitions": topic.partitions,
        "ready": topic.ready,
        "configs": dict(topic.configs),
        "internal": topic.internal,
    }


def _topic_from_json(topic_id: TopicId, value: Json | None) -> TopicStored | TopicRemoved:
    if value is None:
        return TopicRemoved(topic_id=topic_id)
    topic = Topic(
        name=TopicName(value["name"]),
        topic_id=topic_id,
        partitions=value["partitions"],
        ready=value["ready"],
        configs=value["configs"],
        internal=value["internal"],
    )
    return TopicStored(topic=topic)


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
