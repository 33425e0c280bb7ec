"""Proves the talk about clients' metrics: ids, intervals, refusals, and that bombs cost nothing."""

from collections.abc import Mapping
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.client_metrics import MetricsClient, WantedMetrics
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.telemetry import NO_INSTANCE, Instance, Push, Telemetry
from penstock.model.errors import Refused
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.records.compression import Codec, compress

INTERVAL_S = 10.0
BYTES_MAX = 1_000
ID = UUID(int=77)


class Metrics:
    """The broker's side: one subscription for all."""

    def __init__(self) -> None:
        self.version = 0
        self.push_bytes_max = BYTES_MAX
        self.wanted = WantedMetrics(("org.",), int(INTERVAL_S * 1000))
        self.kept: list[tuple[UUID, bytes, bool]] = []

    def wanted_of(self, client: MetricsClient) -> WantedMetrics:
        return self.wanted

    def keep(self, client: MetricsClient, otlp: bytes, *, is_final: bool) -> None:
        self.kept.append((client.instance_id, otlp, is_final))


class Talk:
    def __init__(self, **bounds: int) -> None:
        self.metrics = Metrics()
        numbers = count(100)
        self.telemetry = Telemetry(
            self.metrics,  # type: ignore[arg-type]
            new_uuid=lambda: UUID(int=next(numbers)),
            **bounds,
        )
        self.now = 1_000.0

    def subscribe(self, instance_id: UUID = ID, connection_id: int = 1) -> Instance:
        return self.telemetry.subscribe(_client(instance_id), connection_id, self.now)

    def push(
        self, subscription_id: int, instance_id: UUID = ID, connection_id: int = 1, **more: Any
    ) -> None:
        given: Mapping[str, Any] = {
            "is_terminating": False,
            "codec": Codec.NONE,
            "metrics": b"values",
            **more,
        }
        push = Push(subscription_id=subscription_id, **given)
        self.telemetry.push(_client(instance_id), connection_id, push, self.now)

    def refusal(self, *what: Any, **more: Any) -> ErrorCode:
        with pytest.raises(Refused) as caught:
            self.push(*what, **more)
        return error_code(caught.value)

    def is_throttled(self) -> bool:
        try:
            self.subscribe()
        except Refused as refused:
            return error_code(refused) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return False


def _client(instance_id: UUID) -> MetricsClient:
    return MetricsClient(instance_id, "app", "java", "4.3.1", "127.0.0.1", 5000)


def test_a_client_without_an_id_gets_one_and_one_with_an_id_keeps_it() -> None:
    talk = Talk()
    assert talk.subscribe(NO_INSTANCE).client.instance_id == UUID(int=100)
    assert talk.subscribe(NO_INSTANCE).client.instance_id == UUID(int=101)
    assert talk.subscribe().client.instance_id == ID


def test_the_subscription_id_tells_clients_and_subscriptions_apart_and_is_stable() -> None:
    def number(instance: int, *metrics: str, interval_ms: int = 1_000) -> int:
        wanted = WantedMetrics(metrics, interval_ms)
        return Instance(_client(UUID(int=instance << 90)), wanted, 0).subscription_id

    different = {number(1, "a"), number(2, "a"), number(1, "b"), number(1, "a", interval_ms=1_001)}
    assert len(different) == 4
    assert number(1, "a") == number(1, "a")
    numbers = [number(instance, "a") for instance in range(100)]
    assert all(-(2**31) <= each < 2**31 for each in numbers)
    assert min(numbers) < 0 < max(numbers)


def test_the_first_push_may_come_at_once_and_the_next_when_it_is_due() -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    talk.push(number)
    assert talk.refusal(number) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    talk.now += INTERVAL_S
    talk.push(number, metrics=b"later")
    assert talk.metrics.kept == [(ID, b"values", False), (ID, b"later", False)]


def test_who_asks_again_too_early_is_throttled() -> None:
    talk = Talk()
    talk.subscribe()
    talk.now += INTERVAL_S - 0.1
    assert talk.is_throttled()
    talk.now += 0.1
    assert not talk.is_throttled()


def test_who_asks_after_its_subscription_changed_is_told_at_once() -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    talk.metrics.wanted = WantedMetrics(("other",), 5_000)
    talk.metrics.version += 1
    assert talk.refusal(number) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    new = talk.subscribe()
    assert new.subscription_id != number
    assert new.wanted.metrics == ("other",)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_who_was_refused_for_what_it_should_ask_for_may_ask_at_once(
    wrong: dict[str, int], code: ErrorCode
) -> None:
    talk = Talk()
    pushed = {"subscription_id": talk.subscribe().subscription_id, **wrong}
    assert talk.refusal(**pushed) is code
    assert not talk.is_throttled()
    # Once.
    assert talk.is_throttled()


def test_a_push_that_is_too_large_is_refused_and_its_client_has_to_wait() -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    assert talk.refusal(number, metrics=b"x" * 1_001) is ErrorCode.TELEMETRY_TOO_LARGE
    assert talk.is_throttled()
    assert talk.metrics.kept == []


def test_the_last_push_may_come_early_and_none_after_it() -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    talk.push(number)
    talk.push(number, is_terminating=True, metrics=b"last")
    assert talk.metrics.kept[-1] == (ID, b"last", True)
    talk.now += INTERVAL_S
    assert talk.refusal(number) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("number", [0, 1])
def test_a_push_without_an_id_is_refused(number: int) -> None:
    assert Talk().refusal(0, UUID(int=number)) is ErrorCode.INVALID_REQUEST


def test_a_push_without_values_is_fine_and_keeps_nothing() -> None:
    talk = Talk()
    talk.push(talk.subscribe().subscription_id, metrics=b"")
    assert talk.metrics.kept == []


@pytest.mark.parametrize("codec", list(Codec))
def test_values_are_unpacked(codec: Codec) -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    talk.push(number, codec=codec, metrics=compress(codec, b"values" * 50))
    assert talk.metrics.kept == [(ID, b"values" * 50, False)]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_unpacks_to_too_much_or_to_nothing_is_refused_and_not_kept(codec: Codec) -> None:
    talk = Talk()
    talk.metrics.push_bytes_max = 1 << 20
    bomb = compress(codec, b"\0" * (8 << 20))
    assert len(bomb) <= 1 << 20
    for metrics in (bomb, b"not packed at all"):
        number = talk.subscribe().subscription_id
        assert talk.refusal(number, codec=codec, metrics=metrics) is ErrorCode.INVALID_RECORD
        talk.now += INTERVAL_S
    assert talk.metrics.kept == []


def test_a_client_is_forgotten_with_its_connection() -> None:
    talk = Talk()
    talk.subscribe(connection_id=5)
    assert talk.is_throttled()
    talk.telemetry.closed(5)
    assert len(talk.telemetry) == 0
    assert not talk.is_throttled()


def test_a_client_that_is_silent_for_long_is_a_new_one() -> None:
    talk = Talk()
    number = talk.subscribe().subscription_id
    talk.push(number, is_terminating=True)
    talk.now += 61.0
    talk.push(number, metrics=b"back")
    assert talk.metrics.kept[-1] == (ID, b"back", False)


def test_only_so_many_clients_are_remembered() -> None:
    talk = Talk(instances_max=3)
    for number in range(10):
        talk.subscribe(UUID(int=200 + number), connection_id=1)
    assert len(talk.telemetry) == 3
