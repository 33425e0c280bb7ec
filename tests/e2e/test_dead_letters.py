"""Dead letters under a real client: a poisonous message is parked while others flow by, and comes
back when it is asked for. Brokers that are killed on the way lose and double nothing."""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    AcknowledgeType,
    Consumer,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)

from penstock.client.errors import ClientError
from penstock.client.queues import Queues
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker, run
from tests.e2e.queue_members import Place, produce
from tests.e2e.queue_session import configure_group
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(300)]

TOPIC, GROUP, DLQ = "jobs", "workers", "dlq.jobs"
DONE_S = 120.0
LIMIT = 3
KILLS = 5


class Worker:
    """A share consumer in a thread, which says of each record what a test wants."""

    def __init__(self, bootstrap: str, word: Callable[[bytes], str]) -> None:
        self._bootstrap = bootstrap
        self.word = word
        self.attempts: dict[Place, list[int]] = defaultdict(list)
        # How often a broker confirmed that the record is processed.
        self.accepted: Counter[Place] = Counter()
        self.values: dict[Place, bytes] = {}
        self.failures: list[object] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert self.failures == []

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.failures.append(error)

    def _run(self) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.max.ms": 300,
                "log_level": 2,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            answers = [
                self._answer(consumer, message)
                for message in consumer.poll(0.2)
                if message.error() is None
            ]
            if answers:
                self._commit(consumer, answers)
        consumer.close()

    def _answer(self, consumer: ShareConsumer, message: Any) -> tuple[Place, str]:
        place = (message.partition(), message.offset())
        self.attempts[place].append(message.delivery_count())
        self.values[place] = message.value()
        kind = self.word(message.value())
        consumer.acknowledge(message, AcknowledgeType[kind])
        return place, kind

    def _commit(self, consumer: ShareConsumer, answers: list[tuple[Place, str]]) -> None:
        try:
            outcomes = consumer.commit_sync(30)
        except KafkaException:
            return
        failed = {each.partition for each, error in outcomes.items() if error is not None}
        for place, kind in answers:
            self.accepted[place] += kind == "ACCEPT" and place[0] not in failed


def is_bad(value: bytes) -> bool:
    return value.startswith(b"bad")


def rejecting(value: bytes) -> str:
    return "REJECT" if is_bad(value) else "ACCEPT"


def accepting(_: bytes) -> str:
    return "ACCEPT"


def begin(bootstrap: str, partitions: int = 1) -> None:
    create_topic(bootstrap, TOPIC, partitions=partitions)
    configure_group(
        bootstrap,
        GROUP,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit=str(LIMIT),
        errors_deadletterqueue_topic_name=DLQ,
    )


def letters(bootstrap: str) -> list[Any]:
    """All that the dead-letter topic has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 2})
    try:
        topic = consumer.list_topics(DLQ, timeout=10).topics[DLQ]
        if topic.error is not None or not topic.partitions:
            return []
        places = [TopicPartition(DLQ, each, OFFSET_BEGINNING) for each in topic.partitions]
        left = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        found: list[Any] = []
        while len(found) < left:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            found.append(message)
        return found
    finally:
        consumer.close()


def headers(letter: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers()}


def place_of(letter: Any) -> Place:
    said = headers(letter)
    return int(said["__dlq.errors.partition"]), int(said["__dlq.errors.offset"])


def letters_so_far(bootstrap: str) -> int:
    """0 while nobody can say."""
    try:
        found = Queues(bootstrap, timeout_s=5).describe(GROUP)
    except ClientError:
        return 0
    return sum(one.dead_letters for one in found.partitions)


def test_a_poisonous_message_is_parked_and_brought_back(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    begin(broker.bootstrap)
    values = ["one", "bad", "two", "three"]
    places = produce(broker.bootstrap, TOPIC, values, 1)
    with Worker(broker.bootstrap, lambda value: "RELEASE" if is_bad(value) else "ACCEPT") as worker:
        wait_until("a letter", lambda: letters_so_far(broker.bootstrap) == 1, DONE_S)
        produce(broker.bootstrap, TOPIC, ["four"], 1)
        wait_until("the others", lambda: len(worker.accepted) == 4, DONE_S)
        (letter,) = letters(broker.bootstrap)
        said = headers(letter)
        assert letter.value() == b"bad"
        assert {name: said[f"__dlq.errors.{name}"] for name in ("topic", "group", "offset")} == {
            "topic": TOPIC,
            "group": GROUP,
            "offset": "1",
        }
        assert said["__dlq.errors.delivery.count"] == str(LIMIT)
        assert said["__dlq.errors.message"] == "Offset delivery count exceeded the threshold."
        assert worker.attempts[0, 1] == [1, 2, 3]
        worker.word = accepting
        redriven = run("queue", "redrive", GROUP, TOPIC, "-b", broker.bootstrap)
        assert "1 record of jobs brought back" in redriven.stdout
        wait_until("the poisonous one", lambda: worker.accepted[0, 1] == 1, DONE_S)
        assert worker.attempts[0, 1] == [1, 2, 3, 1]
    shown = run("queue", "describe", GROUP, "-b", broker.bootstrap).stdout
    assert shown.splitlines()[-1].split()[-3:] == ["0", "1", "1"]
    assert {place for place in places if worker.accepted[place] != 1} == set()


@pytest.mark.slow
def test_kills_at_any_time_lose_and_double_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    begin(broker.bootstrap, partitions=2)
    check_kills(broker.bootstrap, 2, KILLS, broker.kill, broker.start)


def test_leaders_that_die_lose_and_double_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        bootstrap = cluster.nodes[1].bootstrap
        configure_group(
            bootstrap,
            GROUP,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=DLQ,
        )
        killed: list[Broker] = []

        def kill() -> None:
            killed.append(cluster.leader(TOPIC, len(killed) % 2))
            killed[-1].kill()

        check_kills(cluster.bootstrap, 2, 2, kill, lambda: killed[-1].start())


def check_kills(
    bootstrap: str,
    partitions: int,
    kills: int,
    kill: Callable[[], object],
    start: Callable[[], object],
) -> None:
    """First while records are given up, then while they are brought back."""
    chance = random.Random(7)
    places: set[Place] = set()
    bad: set[Place] = set()
    with Worker(bootstrap, rejecting) as worker:
        for number in range(kills):
            values = [f"{'bad' if at % 2 else 'good'} {number} {at}" for at in range(100)]
            places |= produce(bootstrap, TOPIC, values, partitions)
            wait_until(
                "the first of them",
                lambda number=number: len(worker.values) > 100 * number,  # type: ignore[misc]
                DONE_S,
            )
            # Some time while letters are on their way.
            threading.Event().wait(chance.uniform(0.0, 0.3))
            kill()
            start()
        wait_until("all records", lambda: set(worker.values) == places, DONE_S)
        bad = {place for place, value in worker.values.items() if is_bad(value)}
        wait_until("all letters", lambda: letters_so_far(bootstrap) == len(bad), DONE_S)
        found = Counter(map(place_of, letters(bootstrap)))
        assert found == Counter(bad), "each once"
        worker.word = accepting
        redriving = threading.Thread(target=redrive_all, args=(bootstrap,), daemon=True)
        redriving.start()
        for number in range(2):
            wait_until(
                "some of them",
                lambda number=number: sum(map(worker.accepted.__getitem__, bad)) > 20 * number,  # type: ignore[misc]
                DONE_S,
            )
            kill()
            start()
        redriving.join(DONE_S)
        assert not redriving.is_alive()
        queues = Queues(bootstrap, timeout_s=10)
        wait_until("the end", lambda: lag(queues) == 0, DONE_S)
        assert sum(one.redriven for one in queues.describe(GROUP).partitions) == len(bad)
    first_attempts = {place: worker.attempts[place].count(1) for place in bad}
    # Once when it was given up, and once when it came back; a kill may hide a delivery.
    assert max(first_attempts.values()) <= 2, first_attempts
    assert max(worker.accepted.values()) == 1, "nothing is processed twice"
    assert Counter(map(place_of, letters(bootstrap))) == Counter(bad)


def lag(queues: Queues) -> int | None:
    try:
        return queues.describe(GROUP).lag
    except ClientError:
        return None


def redrive_all(bootstrap: str) -> None:
    """As an operator does it: again, until it is done."""
    while True:
        try:
            result = Queues(bootstrap, timeout_s=10).redrive(GROUP, TOPIC, 7)
        except ClientError:
            continue
        if result.is_finished and not result.reopened:
            return
