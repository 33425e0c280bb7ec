"""What can't be sent is told in a sentence, before the client library sees it go wrong."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import ClientError
from penstock.client.producer import Producer


@pytest.fixture
def producer() -> Iterator[Producer]:
    # Nobody listens there: what is queued is dropped at the end.
    made = Producer("127.0.0.1:1")
    yield made
    made.close()


@pytest.mark.parametrize(
    "what",
    [
        {"headers": [("\ud800", b"v")]},
        {"partition": 2**31},
        {"timestamp_ms": 2**63},
        {"topic": "\udcff"},
    ],
    ids=["header", "partition", "timestamp", "topic"],
)
def test_what_the_protocol_can_not_hold_is_refused(
    producer: Producer, what: dict[str, Any]
) -> None:
    arguments = {"topic": "t", "value": b"v"} | what
    with pytest.raises(ClientError, match=r"^A record for topic .+ can't be sent: .+\.$"):
        producer.send(**arguments)
    assert producer.sent == 0
