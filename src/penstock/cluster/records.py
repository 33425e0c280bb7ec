"""What the cluster's metadata log holds, keyed so that compaction keeps the last of each key.

Every record carries the whole of what its key names, so that any suffix of the log that starts
with a compacted prefix rebuilds the same state. Keys and values are JSON; a value names its
layout's version, so that a later release can still read it.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from penstock.cluster.brokers import Broker
from penstock.cluster.lock import Lock
from penstock.cluster.topic import Assignment, Topic
from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId, TopicId, TopicName

VERSION = 1


class TopicStored(NamedTuple):
    """A topic was made, or something about it changed."""

    topic: Topic


class TopicRemoved(NamedTuple):
    """The topic is gone for everyone; each broker removes its files when it hears of it."""

    topic_id: TopicId


class BrokerStored(NamedTuple):
    """A broker belongs to the cluster, or something about it changed."""

    broker: Broker


class BrokerRemoved(NamedTuple):
    """The broker belongs to the cluster no more. Kept as a record with a value: a founder that
    was removed must be told from one that is still to register."""

    broker: BrokerId


class BrokerConfigStored(NamedTuple):
    """All dynamic settings of one broker, or of all brokers when `broker` is empty."""

    broker: str
    configs: Mapping[str, str]


class ClientMetricsStored(NamedTuple):
    """All settings of one subscription to clients' metrics; none: there is no such subscription."""

    name: str
    configs: Mapping[str, str]


class GroupConfigStored(NamedTuple):
    """All settings of one consumer group; none: it follows the broker's."""

    group: str
    configs: Mapping[str, str]


class ProducerIdsTaken(NamedTuple):
    """Every producer id below `next_producer_id` was handed to some broker."""

    next_producer_id: int


class LockStored(NamedTuple):
    """Somebody holds the lock, or holds it with another lease than before."""

    lock: Lock


class LockRemoved(NamedTuple):
    """Nobody holds the lock: it was released, or its lease ended."""

    name: str


class FencingTokensTaken(NamedTuple):
    """Every fencing token below `next_fencing_token` was handed out."""

    next_fencing_token: int


ClusterRecord: TypeAlias = (
    TopicStored
    | TopicRemoved
    | BrokerStored
    | BrokerRemoved
    | BrokerConfigStored
    | ClientMetricsStored
    | GroupConfigStored
    | ProducerIdsTaken
    | LockStored
    | LockRemoved
    | FencingTokensTaken
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
        case BrokerStored(broker=broker):
            return ["broker", str(broker.id)], {"version": VERSION, **broker_to_json(broker)}
        case BrokerRemoved(broker=broker_id):
            return ["broker", str(broker_id)], {"version": VERSION, "removed": True}
        case BrokerConfigStored(broker=name, configs=configs):
            value = {"version": VERSION, "configs": dict(configs)} if configs else None
            return ["broker-config", name], value
        case ClientMetricsStored(name=name, configs=configs):
            value = {"version": VERSION, "configs": dict(configs)} if configs else None
            return ["client-metrics", name], value
        case GroupConfigStored(group=name, configs=configs):
            value = {"version": VERSION, "configs": dict(configs)} if configs else None
            return ["group-config", name], value
        case ProducerIdsTaken(next_producer_id=next_producer_id):
            return ["producer-ids"], {"version": VERSION, "next": next_producer_id}
        case LockStored(lock=lock):
            return ["lock", lock.name], {"version": VERSION, **_lock_to_json(lock)}
        case LockRemoved(name=name):
            return ["lock", name], None
        case FencingTokensTaken(next_fencing_token=next_token):
            return ["fencing-tokens"], {"version": VERSION, "next": next_token}


def from_json(key: list[str], value: Json | None) -> ClusterRecord:
    if value is not None and value.get("version") != VERSION:
        raise UnreadableRecord(f"metadata record {key} has version {value.get('version')}")
    match key:
        case ["topic", hex_id]:
            return _topic_from_json(TopicId(UUID(hex=hex_id)), value)
        case ["broker", number] if value is not None:
            if value.get("removed"):
                return BrokerRemoved(broker=BrokerId(int(number)))
            return BrokerStored(broker=broker_from_json(value))
        case ["broker-config", name]:
            return BrokerConfigStored(broker=name, configs=value["configs"] if value else {})
        case ["client-metrics", name]:
            return ClientMetricsStored(name=name, configs=value["configs"] if value else {})
        case ["group-config", name]:
            return GroupConfigStored(group=name, configs=value["configs"] if value else {})
        case ["producer-ids"] if value is not None:
            return ProducerIdsTaken(next_producer_id=value["next"])
        case ["lock", name]:
            return _lock_from_json(name, value)
        case ["fencing-tokens"] if value is not None:
            return FencingTokensTaken(next_fencing_token=value["next"])
    raise UnreadableRecord(
        f"metadata record {key} is of an unknown kind; a newer release may have written it"
    )


class ClusterRecordCodec:
    """The records as key and value of a record in the log."""

    def encode(self, record: ClusterRecord) -> tuple[bytes | None, bytes | None]:
        key, value = to_json(record)
        return _dump(key), None if value is None else _dump(value)

    def decode(self, key: bytes | None, value: bytes | None) -> ClusterRecord:
        if key is None:
            raise UnreadableRecord("metadata record without a key")
        return from_json(json.loads(key), None if value is None else json.loads(value))


def broker_to_json(broker: Broker) -> Json:
    return {
        "id": broker.id,
        "directory": broker.directory,
        "kafka": list(broker.kafka),
        "peer": list(broker.peer),
        "rack": broker.rack,
    }


def broker_from_json(value: Json) -> Broker:
    """Raises KeyError, TypeError or ValueError when this is not a broker."""
    rack = value["rack"]
    return Broker(
        id=BrokerId(int(value["id"])),
        directory=DirectoryId(str(value["directory"])),
        kafka=_endpoint(value["kafka"]),
        peer=_endpoint(value["peer"]),
        rack=None if rack is None else str(rack),
    )


def _endpoint(value: list[Any]) -> Endpoint:
    host, port = value
    return Endpoint(str(host), int(port))


def _lock_to_json(lock: Lock) -> Json:
    return {"owner": lock.owner, "token": lock.fencing_token, "lease_ms": lock.lease_ms}


def _lock_from_json(name: str, value: Json | None) -> LockStored | LockRemoved:
    if value is None:
        return LockRemoved(name=name)
    return LockStored(lock=Lock(name, value["owner"], value["token"], value["lease_ms"]))


def _topic_to_json(topic: Topic) -> Json:
    # Thousands of partitions share few founders: each is written once, and named by its place.
    places: dict[ReplicaId, int] = {}
    assignments = [
        [
            assignment.replicas,
            [places.setdefault(founder, len(places)) for founder in assignment.founders],
            assignment.previous,
        ]
        for assignment in topic.assignments
    ]
    return {
        "version": VERSION,
        "name": topic.name,
        "founders": list(places),
        "assignments": assignments,
        "configs": dict(topic.configs),
        "internal": topic.internal,
    }


def _topic_from_json(topic_id: TopicId, value: Json | None) -> TopicStored | TopicRemoved:
    if value is None:
        return TopicRemoved(topic_id=topic_id)
    founders = [ReplicaId(*founder) for founder in value["founders"]]
    topic = Topic(
        name=TopicName(value["name"]),
        topic_id=topic_id,
        assignments=tuple(
            Assignment(
                tuple(replicas),
                tuple(founders[place] for place in places),
                None if previous is None else tuple(previous),
            )
            for replicas, places, previous in value["assignments"]
        ),
        configs=value["configs"],
        internal=value["internal"],
    )
    return TopicStored(topic=topic)


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
