"""Proves that clients' metrics arrive, and that the talk about them goes as with Apache Kafka."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.broker.client_metrics import PushedMetrics
from penstock.config import Settings
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.kafka.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.kafka.messages.push_telemetry import PushTelemetryRequest
from penstock.records.compression import Codec, compress
from penstock.server import Node
from tests.e2e.beside_kafka import Brokers, ask, from_both, say, talk
from tests.e2e.clients.java import Java
from tests.e2e.wire import Wire, connect
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.timeout(240)]

NONE = ErrorCode.NONE
CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOBODY = uuid.UUID(int=0)
PUSHED_TIMEOUT_S = 60.0
MAX_BYTES = 1024 * 1024
TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


# Beside Apache Kafka


def edited(bootstrap: str, name: str, *edits: tuple[str, int, str | None]) -> int:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in edits
    ]
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    code: int = say(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code
    return code


def told(bootstrap: str, name: str) -> Any:
    asked = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    result = say(bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]
    configs = sorted(result.configs, key=lambda each: str(each.name))
    return result.error_code, [
        (
            each.name,
            each.value,
            each.config_source,
            each.config_type,
            each.read_only,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in configs
    ]


def subscriptions(bootstrap: str) -> set[str]:
    answer = say(bootstrap, ApiKey.LIST_CONFIG_RESOURCES, 0, ListConfigResourcesRequest())
    return {each.resource_name for each in answer.config_resources}


class Client:
    """One that speaks by hand."""

    def __init__(self, wire: Wire, instance_id: uuid.UUID | None = None) -> None:
        self._wire = wire
        self.id = uuid.uuid4() if instance_id is None else instance_id
        self.number = 0

    def get(self) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.id)
        (answer,) = talk(self._wire, ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, request))
        if answer.error_code == NONE:
            self.id, self.number = answer.client_instance_id, answer.subscription_id
        return answer

    def push(
        self, metrics: bytes = b"", *, off: int = 0, codec: int = 0, last: bool = False
    ) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.id,
            subscription_id=self.number + off,
            terminating=last,
            compression_type=codec,
            metrics=metrics,
        )
        (answer,) = talk(self._wire, ask(ApiKey.PUSH_TELEMETRY, 0, request))
        code: int = answer.error_code
        return code


@contextmanager
def subscribed(bootstrap: str, metrics: str) -> Iterator[None]:
    """While every client that speaks by hand is asked for these."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    edits = ("metrics", SET, metrics), ("match", SET, "client_id=wire,client_source_address=127.*")
    assert edited(bootstrap, name, *edits) == NONE

    def is_known() -> bool:
        with connect(bootstrap) as wire:
            return bool(Client(wire).get().requested_metrics == [metrics])

    wait_until("the subscription", is_known, PUSHED_TIMEOUT_S)
    yield
    assert edited(bootstrap, name, ("metrics", DELETE, None), ("match", DELETE, None)) == NONE
    wait_until("its end", lambda: name not in subscriptions(bootstrap), PUSHED_TIMEOUT_S)


@pytest.fixture(scope="module")
def asking(brokers: Brokers) -> Iterator[Brokers]:
    with subscribed(brokers.penstock, "org.apache."), subscribed(brokers.kafka, "org.apache."):
        yield brokers


def alike(brokers: Brokers, converse: Callable[[Client], Any]) -> Any:
    """What a conversation comes to, which is on both the same."""
    instance_id = uuid.uuid4()

    def answers(address: str) -> Any:
        with connect(address) as wire:
            return converse(Client(wire, instance_id))

    ours, theirs = from_both(brokers, answers)
    assert ours == theirs
    return ours


@pytest.mark.slow
def test_a_client_is_told_the_same_what_to_push(asking: Brokers) -> None:
    answer = alike(asking, lambda client: client.get())
    assert answer.requested_metrics == ["org.apache."]
    assert answer.push_interval_ms == 300_000
    assert answer.telemetry_max_bytes == MAX_BYTES
    assert answer.accepted_compression_types == [4, 3, 1, 2]


def test_a_client_without_an_id_gets_one(asking: Brokers) -> None:
    def converse(client: Client) -> Any:
        client.id = NOBODY
        codes = [client.get().error_code]
        return client.id == NOBODY, [*codes, client.get().error_code]

    assert alike(asking, converse) == (False, [NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])


def _refused_and_asks_again(**wrong: int) -> Callable[[Client], Any]:
    def converse(client: Client) -> Any:
        client.get()
        codes = [client.push(b"x", **wrong), client.get().error_code, client.get().error_code]
        return [*codes, client.push(b"x")]

    return converse


EARLY = ErrorCode.THROTTLING_QUOTA_EXCEEDED
BAD = ErrorCode.INVALID_RECORD
CONVERSATIONS: dict[str, tuple[Callable[[Client], Any], list[int]]] = {
    "a push that is early": (
        lambda client: [client.get().error_code, client.push(b"x"), client.push(b"x")],
        [NONE, NONE, EARLY],
    ),
    "a subscription that is unknown": (
        _refused_and_asks_again(off=1),
        [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, NONE, EARLY, EARLY],
    ),
    "a compression that does not exist": (
        _refused_and_asks_again(codec=9),
        [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, NONE, EARLY, EARLY],
    ),
    "a negative compression": (
        _refused_and_asks_again(codec=-1),
        [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, NONE, EARLY, EARLY],
    ),
    "a push that is too large": (
        lambda client: [
            client.get().error_code,
            client.push(bytes(MAX_BYTES + 1)),
            client.get().error_code,
        ],
        [NONE, ErrorCode.TELEMETRY_TOO_LARGE, EARLY],
    ),
    "a push that is just small enough": (
        lambda client: [client.get().error_code, client.push(bytes(MAX_BYTES))],
        [NONE, NONE],
    ),
    "a last push": (
        lambda client: [
            client.get().error_code,
            client.push(b"x"),
            client.push(b"x", last=True),
            client.push(b"x", last=True),
            client.push(b"x"),
        ],
        [NONE, NONE, NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST],
    ),
    "a push without a question": (
        lambda client: [client.push(b"x"), client.get().error_code, client.push(b"x")],
        [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, NONE, EARLY],
    ),
    "a push of nothing": (
        lambda client: [client.get().error_code, client.push(), client.push(last=True)],
        [NONE, NONE, NONE],
    ),
}
for _codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
    CONVERSATIONS[f"a bomb in {_codec.name}"] = (
        lambda client, codec=_codec: [
            client.get().error_code,
            client.push(compress(codec, bytes(8 * MAX_BYTES)), codec=codec),
            client.get().error_code,
        ],
        [NONE, BAD, EARLY],
    )
    CONVERSATIONS[f"garbage for {_codec.name}"] = (
        lambda client, codec=_codec: [
            client.get().error_code,
            client.push(b"this is not packed at all", codec=codec),
        ],
        [NONE, BAD],
    )
    CONVERSATIONS[f"values in {_codec.name}"] = (
        lambda client, codec=_codec: [
            client.get().error_code,
            client.push(compress(codec, bytes(1000)), codec=codec),
        ],
        [NONE, NONE],
    )


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_pushes_are_answered_as_kafka_answers_them(asking: Brokers, name: str) -> None:
    converse, expected = CONVERSATIONS[name]
    assert alike(asking, converse) == expected


@pytest.mark.parametrize("number", [0, 1])
def test_a_push_of_nobody_is_refused(asking: Brokers, number: int) -> None:
    def converse(client: Client) -> Any:
        client.id = uuid.UUID(int=number)
        return client.push(b"x")

    assert alike(asking, converse) == ErrorCode.INVALID_REQUEST


def test_a_client_that_comes_back_on_another_connection_is_a_new_one(asking: Brokers) -> None:
    answers = []
    for address in asking:
        with connect(address) as wire:
            client = Client(wire)
            assert client.get().error_code == NONE

        def asks_again(address: str = address, client: Client = client) -> bool:
            with connect(address) as wire:
                return bool(Client(wire, client.id).get().error_code == NONE)

        # The broker hears of the end of a connection a little later.
        wait_until("a broker that forgot", asks_again, PUSHED_TIMEOUT_S)
        answers.append(True)
    assert answers == [True, True]


BAD_EDITS: list[tuple[tuple[str, int, str], ErrorCode]] = [
    (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
    (("interval.ms", SET, "3600001"), ErrorCode.INVALID_REQUEST),
    (("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
    (("interval.ms", APPEND, "100"), ErrorCode.INVALID_CONFIG),
    (("match", APPEND, "client_id=x"), ErrorCode.INVALID_CONFIG),
    (("metrics", SUBTRACT, "a"), ErrorCode.INVALID_CONFIG),
    (("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
    (("no.such", APPEND, "1"), ErrorCode.INVALID_CONFIG),
    (("match", SET, "color=red"), ErrorCode.INVALID_CONFIG),
    (("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
    (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
    (("match", SET, "client_id=a=b"), ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize(("edit", "code"), BAD_EDITS)
def test_bad_settings_of_subscriptions_are_refused_alike(
    brokers: Brokers, edit: tuple[str, int, str], code: ErrorCode
) -> None:
    assert [edited(address, "bad", edit) for address in brokers] == [code, code]
    assert [subscriptions(address) & {"bad"} for address in brokers] == [set(), set()]


def test_subscriptions_are_told_and_listed_alike(brokers: Brokers) -> None:
    def settled(address: str, expected: bool) -> None:
        wait_until(
            "the change", lambda: ("told" in subscriptions(address)) == expected, PUSHED_TIMEOUT_S
        )

    def converse(address: str) -> Any:
        steps = [told(address, ""), told(address, "told")]
        assert (
            edited(address, "told", ("metrics", SET, "a, b,a"), ("match", SET, "client_id=x")) == 0
        )
        settled(address, True)
        steps.append(told(address, "told"))
        assert edited(address, "told", ("metrics", DELETE, None), ("match", DELETE, None)) == 0
        settled(address, False)
        return [*steps, told(address, "told"), edited(address, "", ("metrics", SET, "a"))]

    ours, theirs = from_both(brokers, converse)
    assert ours == theirs


# With clients that others wrote


class Running:
    """A node in a thread of this process, so that a test can look into it."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._node = Node(
            Settings(data_dir=path, kafka=Endpoint("127.0.0.1", 0), grpc=None, http=None)
        )
        bound = self._do(self._node.start())
        self.bootstrap = f"{bound.host}:{bound.port}"

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PUSHED_TIMEOUT_S)

    def pushed(self, client_id: str) -> list[PushedMetrics]:
        async def look() -> list[PushedMetrics]:
            return self._node.services.client_metrics.last_pushed()

        return [each for each in self._do(look()) if each.client.client_id == client_id]

    def close(self) -> None:
        self._do(self._node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    node = Running(tmp_path / "data")
    yield node
    node.close()


def test_the_metrics_of_a_librdkafka_client_arrive(running: Running) -> None:
    everything = (
        ("metrics", SET, "*"),
        ("interval.ms", SET, "100"),
        ("match", SET, "client_id=seen"),
    )
    assert edited(running.bootstrap, "all", *everything) == NONE
    settings = {"bootstrap.servers": running.bootstrap}
    seen = Producer({**settings, "client.id": "seen"})
    unseen = Producer({**settings, "client.id": "unseen"})
    for producer in (seen, unseen):
        producer.produce("t", b"value")
        assert producer.flush(PUSHED_TIMEOUT_S) == 0

    def has_arrived() -> bool:
        return any(b"producer.connection.creation" in each.otlp for each in running.pushed("seen"))

    wait_until("metrics", has_arrived, PUSHED_TIMEOUT_S)
    (pushed,) = running.pushed("seen")
    assert pushed.client.software_name in ("librdkafka", "confluent-kafka-python")
    assert pushed.client.host == "127.0.0.1"
    assert running.pushed("unseen") == []
    first = pushed.at_ms
    wait_until("more", lambda: running.pushed("seen")[0].at_ms > first, PUSHED_TIMEOUT_S)


def test_kafkas_own_tool_asks_for_metrics_and_its_own_client_pushes_them(
    running: Running, java: Java
) -> None:
    def tool(*words: str) -> str:
        return java.tool(TOOL, "--bootstrap-server", running.bootstrap, *words)

    asked = ["--metrics", "org.apache.kafka.producer.", "--interval", "100"]
    tool("--alter", "--name", "java", *asked, "--match", "client_software_name=apache-kafka-java")
    assert "java" in tool("--list")
    assert "interval.ms=100" in tool("--describe", "--name", "java")
    java.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", running.bootstrap, "--topic", "t"),
        *("--command-property", "client.id=console"),
        stdin="value\n",
    )
    wait_until("a push", lambda: bool(running.pushed("console")), PUSHED_TIMEOUT_S)
    (pushed,) = running.pushed("console")
    assert pushed.client.software_name == "apache-kafka-java"
    assert b"org.apache.kafka.producer." in pushed.otlp
    tool("--delete", "--name", "java")
    assert "java" not in tool("--list")
