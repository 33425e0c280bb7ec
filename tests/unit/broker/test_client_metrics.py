"""Proves which metrics clients are asked for, and that what is kept of them is bounded."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from penstock.broker.client_metrics import ClientMetrics, MetricsClient
from penstock.broker.configs import ClientMetricsResource
from penstock.cluster.changes import BrokersChanged, Change, ClientMetricsChanged
from penstock.cluster.client_metrics import INTERVAL_MS_DEFAULT
from tests.unit.lone_node import LoneNode


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Subscribed:
    """A cluster that has subscriptions and nothing else."""

    def __init__(self) -> None:
        self.client_metrics: Mapping[str, Mapping[str, str]] = {}
        self.tell: Callable[[Change], None] = lambda _: None

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self.tell = listener

    def set(self, **subscriptions: Mapping[str, str]) -> None:
        self.client_metrics = subscriptions
        self.tell(ClientMetricsChanged())


def client(number: int = 1, client_id: str = "app", name: str = "java") -> MetricsClient:
    return MetricsClient(UUID(int=number), client_id, name, "4.3.1", "127.0.0.1", 5000)


def made(**bounds: int) -> tuple[Subscribed, ClientMetrics]:
    cluster = Subscribed()
    return cluster, ClientMetrics(cluster=cast(Any, cluster), clock=Clock(), **bounds)


def test_without_subscriptions_a_client_is_asked_for_nothing_every_five_minutes() -> None:
    _, metrics = made()
    assert metrics.wanted_of(client()) == ((), INTERVAL_MS_DEFAULT)


def test_all_subscriptions_that_match_count_together() -> None:
    cluster, metrics = made()
    cluster.set(
        a={"metrics": "x,y", "interval.ms": "2000"},
        b={"metrics": "y,z", "interval.ms": "1000", "match": "client_software_name=java"},
        c={"metrics": "q", "interval.ms": "100", "match": "client_software_name=librdkafka"},
        slow={"interval.ms": "3600000"},
    )
    assert metrics.wanted_of(client()) == (("x", "y", "z"), 1_000)
    assert metrics.wanted_of(client(name="librdkafka")) == (("q", "x", "y"), 100)


def test_one_subscription_to_everything_leaves_nothing_to_name() -> None:
    cluster, metrics = made()
    cluster.set(a={"metrics": "x"}, b={"metrics": "*"})
    assert metrics.wanted_of(client()).metrics == ("*",)


def test_a_change_of_subscriptions_acts_at_once_and_is_seen() -> None:
    cluster, metrics = made()
    before = metrics.version
    cluster.tell(BrokersChanged())
    assert metrics.version == before
    assert metrics.wanted_of(client()).metrics == ()
    cluster.set(a={"metrics": "x"})
    assert metrics.version > before
    assert metrics.wanted_of(client()).metrics == ("x",)


def test_a_client_can_be_named_by_its_instance_id_as_kafka_writes_it() -> None:
    cluster, metrics = made()
    cluster.set(a={"metrics": "x", "match": "client_instance_id=AAAAAAAAAAAAAAAAAAAAAQ"})
    assert metrics.wanted_of(client(1)).metrics == ("x",)
    assert metrics.wanted_of(client(2)).metrics == ()


def test_the_last_values_of_each_client_are_kept_the_newest_at_the_end() -> None:
    _, metrics = made()
    for number, values in ((1, b"old"), (2, b"two"), (1, b"new")):
        metrics.keep(client(number), values, is_final=values == b"new")
    two, one = metrics.last_pushed()
    assert (two.client, two.otlp, two.is_final) == (client(2), b"two", False)
    assert (one.client, one.otlp, one.is_final) == (client(1), b"new", True)
    assert two.at_ms < one.at_ms


def test_the_client_that_was_heard_of_least_recently_makes_room() -> None:
    _, metrics = made(clients_max=2)
    for number in (1, 2, 1, 3):
        metrics.keep(client(number), b"x")
    assert [each.client.instance_id.int for each in metrics.last_pushed()] == [1, 3]


def test_the_bytes_of_all_clients_are_bounded() -> None:
    _, metrics = made(bytes_max=10)
    for number in range(100):
        metrics.keep(client(number % 5), b"x" * 4)
    assert [each.otlp for each in metrics.last_pushed()] == [b"xxxx"] * 2
    metrics.keep(client(1), b"x" * 11)
    assert metrics.last_pushed() == []


async def test_subscriptions_survive_a_killed_process(tmp_path: Path) -> None:
    node = await LoneNode.start(tmp_path)
    asked: list[tuple[ClientMetricsResource, Mapping[str, str | None]]] = [
        (ClientMetricsResource(name), {"metrics": metrics})
        for name, metrics in (("kept", "x"), ("gone", "y"))
    ]
    assert await node.services.configs.replace(asked) == [None, None]
    await node.services.configs.replace([(ClientMetricsResource("gone"), {})])
    assert node.services.client_metrics.wanted_of(client()).metrics == ("x",)
    node.kill()
    node = await LoneNode.start(tmp_path)
    assert node.services.client_metrics.subscriptions() == ["kept"]
    assert node.services.client_metrics.wanted_of(client()).metrics == ("x",)
    await node.stop()
