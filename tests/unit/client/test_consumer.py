"""What a consumer hands over: every record once, also to who reads on after a break or an error."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import confluent_kafka
import pytest

from penstock.client import consumer as consumer_module
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

PLACE = TopicPartition(TopicName("t"), PartitionIndex(0))


class Message:
    """A record of partition 0 of topic t, or an error."""

    def __init__(
        self, offset: int, error: int | None = None, topic: str | None = PLACE.topic
    ) -> None:
        self._offset = offset
        self._error = error
        self._topic = topic

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return PLACE.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> confluent_kafka.KafkaError | None:
        return None if self._error is None else confluent_kafka.KafkaError(self._error)

    def timestamp(self) -> tuple[int, int]:
        return confluent_kafka.TIMESTAMP_CREATE_TIME, 0

    def headers(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset


class Library:
    """Stands in for librdkafka: hands over what it is given, in portions."""

    def __init__(self) -> None:
        self.portions: list[list[Message]] = []
        self.stored: list[int] = []
        self._left: list[Message] = []
        self._empty_polls = 0

    def poll(self, timeout: float) -> Message | None:
        if self._left:
            return self._left.pop(0)
        if not self.portions:
            self._empty_polls += 1
            assert self._empty_polls < 10, "somebody waits for records that are gone"
            return None
        first, *self._left = self.portions.pop(0)
        return first

    def consume(self, count: int, timeout: float) -> list[Message]:
        left, self._left = self._left, []
        return left

    def assign(self, partitions: Any) -> None:
        self._left = []

    def store_offsets(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        self.stored += [one.offset for one in offsets]

    def close(self) -> None:
        self.portions.clear()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(consumer_module, "_make", lambda settings: made)
    return made


@pytest.fixture
def consumer(library: Library) -> Iterator[Consumer]:
    with Consumer(group="g") as made:
        made.assign({PLACE: 0})
        library.stored.clear()
        yield made


def messages(*offsets: int) -> list[Message]:
    return [Message(offset) for offset in offsets]


def test_a_second_loop_goes_on_where_the_first_broke_off(
    consumer: Consumer, library: Library
) -> None:
    library.portions = [messages(0, 1, 2), messages(3)]
    assert [record.offset for record in islice(consumer, 1)] == [0]
    assert [record.offset for record in islice(consumer, 3)] == [1, 2, 3]
    # The last of each loop may not have been processed: nobody asked for the next one.
    assert library.stored == [2, 3]


def test_poll_gets_what_a_loop_left(consumer: Consumer, library: Library) -> None:
    library.portions = [messages(0, 1, 2), messages(3)]
    assert next(iter(consumer)).offset == 0
    assert [record.offset for record in consumer.poll()] == [1, 2]
    assert [record.offset for record in consumer.poll()] == [3]


def test_what_a_loop_left_is_dropped_by_a_new_assignment(
    consumer: Consumer, library: Library
) -> None:
    library.portions = [messages(0, 1, 2), messages(7)]
    assert next(iter(consumer)).offset == 0
    consumer.assign({PLACE: 7})
    assert [record.offset for record in consumer.poll()] == [7]


def test_an_error_among_records_does_not_cost_them(consumer: Consumer, library: Library) -> None:
    refused = Message(-1, confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, "other")
    library.portions = [[Message(0), refused, Message(1)], messages(2)]
    assert [record.offset for record in consumer.poll()] == [0, 1]
    with pytest.raises(ClientError, match="topic other"):
        consumer.poll()
    assert [record.offset for record in consumer.poll()] == [2]


def test_an_error_alone_is_told_at_once(consumer: Consumer, library: Library) -> None:
    slow = Message(-1, confluent_kafka.KafkaError._MAX_POLL_EXCEEDED, None)
    library.portions = [[slow]]
    with pytest.raises(ClientError, match=r"^Group g took .* max\.poll\.interval\.ms\.$"):
        consumer.poll()
    assert consumer.poll() == []
