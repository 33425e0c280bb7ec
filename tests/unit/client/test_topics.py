"""Topics: one is asked for again when the client library never sent the first request, and what
that library refuses is told in a sentence."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import BrokerUnreachable, ClientError, ControllerNotReached, from_kafka
from penstock.client.topics import Topics

NEVER_SENT = "Failed while waiting for controller: Local: Timed out"


class FakeClient:
    def __init__(self, failure: str) -> None:
        self._failure = failure

    def create_topics(self, topics: list[Any], **_: float) -> dict[str, "Future[None]"]:
        future: Future[None] = Future()
        if self._failure:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, self._failure)))
        else:
            future.set_result(None)
        return {topics[0].topic: future}


class FakeAsking:
    """Each client that is made fails with the next reason; an empty one does not fail."""

    bootstrap = "h:1"
    timeout_s = 1.0

    def __init__(self, *failures: str) -> None:
        self._failures = list(failures)
        self.client: Any = None
        self.reconnect()

    def reconnect(self) -> None:
        self.client = FakeClient(self._failures.pop(0))

    def answer(self, future: "Future[Any]", what: str) -> Any:
        try:
            return future.result(0)
        except KafkaException as error:
            raise from_kafka(error.args[0], what=what, bootstrap=self.bootstrap) from None

    def metadata(self) -> Any:
        raise AssertionError("not asked")


def test_what_was_never_sent_is_asked_again_by_a_new_client() -> None:
    assert Topics(FakeAsking(NEVER_SENT, "")).create("t")
    with pytest.raises(ControllerNotReached):
        Topics(FakeAsking(NEVER_SENT, NEVER_SENT)).create("t")


def test_what_may_have_been_sent_is_not() -> None:
    with pytest.raises(BrokerUnreachable, match="Timed out"):
        Topics(FakeAsking("Timed out", "")).create("t")


def test_a_number_that_the_client_can_not_hold_is_refused_in_a_sentence() -> None:
    with pytest.raises(ClientError, match="The client refused topic t: "):
        Topics(FakeAsking("")).create("t", partitions=2**40)
