"""Members of share groups of three clients, and the history of a queue that tests check.

The value of a record says what its member does with it: `reject`, `release` on the first attempt,
`renew` first (which only Java's client can), and otherwise accept.
"""

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import IO, Any, ClassVar, NamedTuple

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

from tests.e2e.clients.java import Java

WAIT_S = 90.0
POLL_S = 0.2
STOP_S = 60.0

Place = tuple[int, int]


class Holder(NamedTuple):
    member: str
    attempt: int


class QueueLedger:
    """Members report to it from their threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[Place, Holder] = {}
        self.attempts: dict[Place, list[int]] = defaultdict(list)
        # Those whose acceptance was confirmed, and those where nobody knows.
        self.accepted: Counter[Place] = Counter()
        self.rejected: Counter[Place] = Counter()
        self.renewed: Counter[Place] = Counter()
        self.unsure: Counter[Place] = Counter()
        self.by_member: Counter[str] = Counter()
        self.violations: list[str] = []

    def delivered(self, member: str, partition: int, offset: int, attempt: int) -> None:
        place = (partition, offset)
        with self._changed:
            holder = self._holders.get(place)
            if holder is not None:
                self.violations.append(f"{member} gets {place}, which {holder} has")
            self._holders[place] = Holder(member, attempt)
            self.attempts[place].append(attempt)
            self.by_member[member] += 1
            self._changed.notify_all()

    def answers(self, place: Place, kind: str) -> None:
        """Told before the broker is, because others may get the record at once."""
        if kind != "renew":
            with self._changed:
                self._holders.pop(place, None)

    def answered(self, place: Place, kind: str, error: str) -> None:
        counts = {"accept": self.accepted, "reject": self.rejected, "renew": self.renewed}
        with self._changed:
            if error:
                self.unsure[place] += 1
            elif kind in counts:
                counts[kind][place] += 1
            self._changed.notify_all()

    def dies(self, member: str) -> list[Place]:
        """What it has goes to others."""
        with self._changed:
            lost = [place for place, holder in self._holders.items() if holder.member == member]
            for place in lost:
                del self._holders[place]
            return lost

    def nobody_holds(self) -> None:
        """Of a broker that died: whoever has a record has lost its lease, or will."""
        with self._changed:
            self._holders.clear()

    def failed(self, member: str, error: object) -> None:
        with self._changed:
            self.violations.append(f"{member} failed: {error}")
            self._changed.notify_all()

    def wait_until(
        self, what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S
    ) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout_s), f"no {what}: {self.violations}"

    @property
    def ended(self) -> set[Place]:
        return set(self.accepted) | set(self.rejected)

    def check(self, kills: int = 0) -> None:
        """Nobody had a record together with another, none was accepted twice, and attempts are
        counted one by one. A kill may lose an answer whose leases are stored already: nobody got
        that attempt."""
        assert self.violations == []
        assert [place for place, count in self.accepted.items() if count > 1] == []
        assert set(self.accepted) & set(self.rejected) == set()
        for place, attempts in self.attempts.items():
            assert len(set(attempts)) == len(attempts), f"{place}: {attempts}"
            assert min(attempts) >= 1, f"{place}: {attempts}"
            assert max(attempts) <= len(attempts) + kills, f"{place}: {attempts}"


class ConfluentShare:
    """confluent-kafka's ShareConsumer, in a thread."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, group: str, ledger: QueueLedger
    ) -> None:
        self.name, self.topic, self.ledger = name, topic, ledger
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 500,
            "log_level": 3,
        }
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.ledger.failed(self.name, repr(error))

    def _run(self) -> None:
        consumer = ShareConsumer(self._settings)
        consumer.subscribe([self.topic])
        while not self._stopping.is_set():
            answers = [
                self._answer(consumer, message)
                for message in consumer.poll(POLL_S)
                if message.error() is None
            ]
            if answers:
                self._commit(consumer, answers)
        consumer.close()

    def _answer(self, consumer: ShareConsumer, message: Any) -> tuple[Place, str]:
        place, attempt = (message.partition(), message.offset()), message.delivery_count()
        self.ledger.delivered(self.name, *place, attempt)
        kind = _chosen(message.value(), attempt)
        consumer.acknowledge(message, AcknowledgeType[kind.upper()])
        return place, kind

    def _commit(self, consumer: ShareConsumer, answers: list[tuple[Place, str]]) -> None:
        for place, kind in answers:
            self.ledger.answers(place, kind)
        try:
            outcomes = consumer.commit_sync(30)
        except KafkaException as error:
            for place, kind in answers:
                self.ledger.answered(place, kind, str(error))
            return
        errors = {each.partition: error for each, error in outcomes.items()}
        for place, kind in answers:
            error = errors.get(place[0])
            self.ledger.answered(place, kind, "" if error is None else str(error))


def _chosen(value: bytes, attempt: int) -> str:
    if value.startswith(b"reject"):
        return "reject"
    return "release" if value.startswith(b"release") and attempt == 1 else "accept"


class JavaShare:
    """Kafka's own share consumer."""

    def __init__(
        self, java: Java, name: str, bootstrap: str, topic: str, group: str, ledger: QueueLedger
    ) -> None:
        self.java, self.name, self.bootstrap = java, name, bootstrap
        self.topic, self.ledger = topic, ledger
        self._key = f"{name}-{uuid.uuid4().hex}"
        self._settings = {"group.id": group, "client.id": name}

    def start(self) -> None:
        self.java.listeners[self._key] = self._on_event
        self.java.call(
            "start_share",
            self.bootstrap,
            member=self._key,
            topic=self.topic,
            settings=self._settings,
        )

    def stop(self) -> None:
        stopped = self.java.call("stop_share", self.bootstrap, member=self._key)
        assert stopped, f"{self.name} does not stop"

    def _on_event(self, event: str, details: list[Any]) -> None:
        match event:
            case "delivered":
                self.ledger.delivered(self.name, *details[:3])
            case "answers":
                partition, offset, _, kind = details
                self.ledger.answers((partition, offset), kind)
            case "answered":
                partition, offset, _, kind, error = details
                self.ledger.answered((partition, offset), kind, error)
            case "failed":
                self.ledger.failed(self.name, details)
            case "left":
                pass
            case _:
                raise AssertionError(f"{self.name} reports {event}, which nobody expects")


class WorkShare:
    """`penstock work`, whose command accepts everything."""

    SAYS = 'echo "$PENSTOCK_PARTITION $PENSTOCK_OFFSET $PENSTOCK_ATTEMPT"'
    KINDS: ClassVar = {"acked": "accept", "released": "release", "rejected": "reject"}

    def __init__(
        self, name: str, bootstrap: str, topic: str, group: str, ledger: QueueLedger
    ) -> None:
        self.name, self.ledger = name, ledger
        self._command = [sys.executable, "-m", "penstock.cli.main", "work", topic, "--json"]
        self._command += ["--group", group, "--bootstrap", bootstrap, "--concurrency", "2"]
        self._command += ["--", "sh", "-c", self.SAYS]
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdout=pipe, stderr=pipe, text=True)
        readers = (
            (self._process.stderr, self._on_command),
            (self._process.stdout, self._on_outcome),
        )
        for stream, read in readers:
            assert stream is not None
            reader = threading.Thread(target=_read_lines, args=(stream, read), daemon=True)
            self._readers.append(reader)
            reader.start()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_S) == 0, f"{self.name} failed"
        for reader in self._readers:
            reader.join(STOP_S)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _on_command(self, line: str) -> None:
        """What commands print; the tool itself says nothing unless it fails."""
        numbers = line.split()
        if len(numbers) != 3 or not all(map(str.isdigit, numbers)):
            self.ledger.failed(self.name, line)
            return
        partition, offset, attempt = map(int, numbers)
        self.ledger.delivered(self.name, partition, offset, attempt)
        self.ledger.answers((partition, offset), "accept")

    def _on_outcome(self, line: str) -> None:
        said = json.loads(line)
        kind = self.KINDS.get(said["outcome"])
        error = "" if kind is not None else f"{said['outcome']}: {said['detail']}"
        self.ledger.answered((said["partition"], said["offset"]), kind or "accept", error)


def _read_lines(stream: IO[str], read: Callable[[str], None]) -> None:
    for line in stream:
        read(line)


def produce(bootstrap: str, topic: str, values: list[str], partitions: int) -> set[Place]:
    """Spread over the partitions; the places of the records."""
    places: set[Place] = set()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, message: places.add((message.partition(), message.offset())),
        )
    assert producer.flush(60) == 0
    assert len(places) == len(values)
    return places
