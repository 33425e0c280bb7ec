"""Proves that Kafka's tool throttles a move, that producers do not notice, and that settings of
throttles are checked and shown as Apache Kafka does it."""

import json
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.e2e.beside_kafka import Brokers, described, from_both, own_id, say
from tests.e2e.clients.java import Java
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("apache-kafka")]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATES = (LEADER_RATE, FOLLOWER_RATE, "replica.alter.log.dirs.io.max.bytes.per.second")
LONG_MAX = 2**63 - 1

RATE = 1_000_000
FILLED_BYTES = 12 * RATE
VALUE_BYTES = 10_000
MOVE_TIMEOUT_S = 90.0
# Two cores serve all nodes, clients and tools. If each answer waited for a throttle, most would
# take half a second and more.
ANSWER_S_MAX = 5.0
ANSWER_S_USUAL_MAX = 0.4
PAUSE_S = 0.05
HEARD_TIMEOUT_S = 30.0


class Trickle:
    """A producer with acks=all that sends one record after the other, and how long each took."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            began = time.monotonic()
            self._producer.produce(self._topic, b"trickle", on_delivery=self._answered)
            self._producer.flush(MOVE_TIMEOUT_S)
            self.seconds.append(time.monotonic() - began)

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(str(error))

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(MOVE_TIMEOUT_S)


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(FILLED_BYTES // VALUE_BYTES):
        producer.produce(topic, b"x" * VALUE_BYTES)
        producer.poll(0)
    assert producer.flush(MOVE_TIMEOUT_S) == 0


def bytes_on(node: ClusterNode) -> int:
    return sum(path.stat().st_size for path in node.data_dir.rglob("*.log"))


def measured_rate(node: ClusterNode) -> float:
    """From when the move is well under way until most of it is done."""
    low, high = FILLED_BYTES // 4, FILLED_BYTES * 3 // 4
    wait_until("the begin of the move", lambda: bytes_on(node) >= low, MOVE_TIMEOUT_S)
    began, begin = time.monotonic(), bytes_on(node)
    wait_until("most of the move", lambda: bytes_on(node) >= high, MOVE_TIMEOUT_S)
    return (bytes_on(node) - begin) / (time.monotonic() - began)


@pytest.fixture
def moves(tmp_path: Path) -> Path:
    return tmp_path / "moves.json"


@pytest.mark.slow
def test_kafka_s_tool_throttles_a_move_while_producers_go_on(
    java: Java, tmp_path: Path, moves: Path
) -> None:
    with Cluster(tmp_path) as cluster:
        topic = cluster.create_topic("moved", partitions=1, factor=2)
        fill(cluster.bootstrap, topic)
        here = cluster.nodes[1].partitions(topic)[topic, 0].replicas
        (target,) = set(cluster.nodes) - here
        replicas = [min(here), target]
        partitions = [{"topic": topic, "partition": 0, "replicas": replicas}]
        moves.write_text(json.dumps({"version": 1, "partitions": partitions}))

        def tool(*words: str) -> str:
            plan = ("--reassignment-json-file", str(moves))
            return java.tool(REASSIGN, "--bootstrap-server", cluster.bootstrap, *plan, *words)

        def moved() -> bool:
            views = [node.partitions(topic)[topic, 0] for node in cluster.nodes.values()]
            return all(view.replicas == set(replicas) == view.in_sync for view in views)

        trickle = Trickle(cluster.bootstrap, topic)
        try:
            # By then what was filled in counts as old, and a replica without it as behind.
            wait_until("some answers", lambda: len(trickle.seconds) > 2 / PAUSE_S, MOVE_TIMEOUT_S)
            printed = tool("--execute", "--throttle", str(RATE))
            assert f"The inter-broker throttle limit was set to {RATE} B/s" in printed
            assert "Successfully started partition reassignment" in printed
            rate = measured_rate(cluster.nodes[target])
            assert "is still in progress" in tool("--verify", "--preserve-throttles")
            wait_until(
                "the end of the move",
                lambda: "is completed" in tool("--verify"),
                MOVE_TIMEOUT_S,
            )
        finally:
            trickle.close()
        assert RATE / 2 <= rate <= RATE * 2
        assert trickle.errors == []
        assert median(trickle.seconds) < ANSWER_S_USUAL_MAX
        assert max(trickle.seconds) < ANSWER_S_MAX
        # The tool asked one node, and the others hear of it a little later.
        wait_until("all know where the replicas are", moved, MOVE_TIMEOUT_S)
        for node in cluster.nodes.values():
            assert described(node.bootstrap, BROKER, str(node.number), *RATES) == {}
            lists = described(node.bootstrap, TOPIC, topic, LEADERS, FOLLOWERS)
            assert {value for value, *_ in lists.values()} == {""}


def alter(bootstrap: str, kind: int, resource: str, **texts: str | None) -> tuple[int, str | None]:
    """Sets what has a value, and deletes what has none."""
    configs = [
        AlterableConfig(name=name, config_operation=DELETE if text is None else SET, value=text)
        for name, text in texts.items()
    ]
    asked = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[asked])
    (answer,) = say(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


# Kafka takes numbers and lists with odd white space and commas too, but its broker fails on some.
NUMBERS = ("0", "1", str(LONG_MAX), "-1", "x", "", "1.5", str(LONG_MAX + 1))
LISTS = (
    *("", "*", " * ", "0:1", "0:1,1:2", " 0:1 , 1:2 ", "007:1", "9:99"),
    *("*,*", "0:1,*", "1", "0:1:2", "a:1", "*:1", "0:*", "-1:0", "0: 1"),
    *(":", "0:", "0;1", "0:1 1:2", "all", "none"),
)


def outcome(bootstrap: str, kind: int, resource: str, name: str, text: str) -> tuple[Any, Any]:
    """What the broker says to the value, and what it shows then; as it was before, in the end."""
    before = described(bootstrap, kind, resource, name)

    def is_changed() -> bool:
        return described(bootstrap, kind, resource, name) != before

    answer = alter(bootstrap, kind, resource, **{name: text})
    if answer[0] != ErrorCode.NONE:
        return answer
    # Brokers hear of it a moment later.
    wait_until("the setting", is_changed, HEARD_TIMEOUT_S)
    shown = described(bootstrap, kind, resource, name)
    assert alter(bootstrap, kind, resource, **{name: None}) == (ErrorCode.NONE, None)
    wait_until("the end of the setting", lambda: not is_changed(), HEARD_TIMEOUT_S)
    return answer, shown


@pytest.mark.parametrize("name", [LEADERS, FOLLOWERS])
def test_lists_of_throttled_replicas_are_checked_and_shown_as_by_kafka(
    brokers: Brokers, name: str
) -> None:
    def outcomes(bootstrap: str) -> dict[str, object]:
        topic = create_topic(bootstrap)
        found = {text: outcome(bootstrap, TOPIC, topic, name, text) for text in LISTS}
        return {"unset": described(bootstrap, TOPIC, topic, name), **found}

    ours, theirs = from_both(brokers, outcomes)
    assert ours == theirs


def without_words(found: dict[str, Any]) -> dict[str, Any]:
    """The codes of refusals alone."""
    return {
        text: outcome if isinstance(outcome[0], tuple) else outcome[0]
        for text, outcome in found.items()
    }


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("is_for_all", [False, True])
def test_rates_of_throttles_are_checked_and_shown_as_by_kafka(
    brokers: Brokers, name: str, is_for_all: bool
) -> None:
    def outcomes(bootstrap: str) -> dict[str, object]:
        resource = "" if is_for_all else own_id(bootstrap)
        found = {text: outcome(bootstrap, BROKER, resource, name, text) for text in NUMBERS}
        return {"unset": described(bootstrap, BROKER, resource, name), **without_words(found)}

    ours, theirs = from_both(brokers, outcomes)
    assert ours == theirs
