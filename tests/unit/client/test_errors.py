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
