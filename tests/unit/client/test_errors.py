"""librdkafka's errors become typed errors with one sentence each."""

import pytest
from confluent_kafka import KafkaError

from penstock.client.errors import (
    BrokerUnreachable,
    ClientError,
    GroupActive,
    TopicExists,
    TopicNotFound,
    from_kafka,
    no_answer,
    reason_of,
)


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicNotFound, "Topic x does not exist."),
        (KafkaError.TOPIC_ALREADY_EXISTS, TopicExists, "Topic x already exists."),
        (KafkaError._TRANSPORT, BrokerUnreachable, "No broker answers at h:1: broken."),
        (KafkaError._TIMED_OUT, BrokerUnreachable, "No broker answers at h:1: broken."),
        (KafkaError.INVALID_CONFIG, ClientError, "The broker refused topic x: broken."),
        (
            KafkaError.NON_EMPTY_GROUP,
            GroupActive,
            "Topic x has active members: stop its consumers first.",
        ),
    ],
)
def test_errors_are_typed_and_told(code: int, kind: type[ClientError], sentence: str) -> None:
    error = from_kafka(KafkaError(code, "broken."), what="topic x", bootstrap="h:1")
    assert type(error) is kind
    assert str(error) == sentence


def test_a_reason_stands_inside_a_sentence() -> None:
    assert reason_of(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)) == "Unknown topic or partition"
    assert reason_of(KafkaError(KafkaError._FAIL, "a\n  b.")) == "a b"


@pytest.mark.parametrize(
    ("bootstrap", "is_hinted"),
    [
        ("127.0.0.1:9092", True),
        ("localhost:9092", True),
        ("127.0.0.1:9192", False),
        ("10.0.0.1:9092", False),
        ("127.0.0.1:9092,127.0.0.1:9192", False),
    ],
)
def test_whoever_looks_for_a_broker_on_this_machine_learns_how_to_start_one(
    bootstrap: str, is_hinted: bool
) -> None:
    sentence = str(no_answer(bootstrap, "connection refused"))
    assert sentence.startswith(f"No broker answers at {bootstrap}: connection refused.")
    assert ("penstock up" in sentence) is is_hinted
    told = from_kafka(KafkaError(KafkaError._TRANSPORT), what="topic x", bootstrap=bootstrap)
    assert ("penstock up" in str(told)) is is_hinted
