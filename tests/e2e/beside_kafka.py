"""The same requests to us and to Apache Kafka: what a test says to both, and how."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest
from tests.e2e.topics import create_topic
from tests.e2e.wire import Wire, connect, frame
from tests.waiting import wait_until

RECORDS = 5
Answer = TypeVar("Answer")
LEADER_TIMEOUT_S = 60.0


class Brokers(NamedTuple):
    """The addresses of both."""

    penstock: str
    kafka: str


class Asked(NamedTuple):
    frame: bytes
    key: ApiKey
    version: int
    has_answer: bool = True


def ask(key: ApiKey, version: int, request: object) -> Asked:
    return Asked(frame(key, version, request), key, version)


def talk(wire: Wire, *conversation: Asked) -> list[Any]:
    """The answers to requests that were sent in one write."""
    wire.send(b"".join(asked.frame for asked in conversation))
    return [wire.receive(asked.key, asked.version) for asked in conversation if asked.has_answer]


def say(bootstrap: str, key: ApiKey, version: int, request: object) -> Any:
    """The answer to one request, on a connection of its own."""
    with connect(bootstrap) as wire:
        return talk(wire, ask(key, version, request))[0]


def from_both(
    brokers: Brokers, converse: Callable[[str], Answer], *, in_turn: bool = False
) -> tuple[Answer, Answer]:
    """What the same conversation comes to with us and with Kafka. Each waits in its own thread, and
    the two waits pass together, unless they are in turn: where a millisecond counts."""
    with ThreadPoolExecutor(1 if in_turn else len(brokers)) as pool:
        ours, theirs = pool.map(converse, brokers)
    return ours, theirs


def on_both(
    brokers: Brokers, converse: Callable[[str, str], Any], *, in_turn: bool = False, **configs: str
) -> Any:
    """What a conversation about a topic with five records comes to; on both the same."""
    ours, theirs = from_both(
        brokers,
        lambda address: converse(address, filled_topic(address, **configs)),
        in_turn=in_turn,
    )
    assert ours == theirs
    return ours


def filled_topic(bootstrap: str, **configs: str) -> str:
    topic = create_topic(bootstrap, **configs)
    with connect(bootstrap) as wire:
        for _ in range(RECORDS):
            # The leader of a new topic may not serve yet.
            wait_until(
                "a leader", lambda: wire.produce(topic, b"value").error_code == 0, LEADER_TIMEOUT_S
            )
    return topic


def own_id(bootstrap: str) -> str:
    answer = say(bootstrap, ApiKey.METADATA, 9, MetadataRequest(topics=[]))
    return str(answer.brokers[0].node_id)


def described(bootstrap: str, kind: int, resource: str, *names: str) -> dict[str, Any]:
    """Settings by name: value, type, source, whether read-only and sensitive, and synonyms."""
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=resource, configuration_keys=list(names) or None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (answer,) = say(bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert answer.error_code == ErrorCode.NONE
    return {
        each.name: (
            each.value,
            each.config_type,
            each.config_source,
            each.read_only,
            each.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in answer.configs
    }
