"""Load for a cluster: producers and consumers, each in a process of its own.

A record begins with the time at which it was sent, so that its reader knows how old it is.
"""

import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.latencies import Latencies

REPORT_S = 0.25
START_TIMEOUT_S = 60.0
# After the last acknowledgement, consumers may take this long for what is under way.
CATCH_UP_S = 30.0
# How much is sent before the clock and the deliveries are looked at again.
SLICE = 200
SLICE_S = 0.005
VALUE_BYTES_MIN = 16
_STAMP = struct.Struct(">d")
_STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be done; `rate` is of all producers together, and None is as fast as possible."""

    bootstrap: str
    topic: str
    producers: int
    consumers: int
    value_bytes: int
    seconds: float | None
    count: int | None
    rate: float | None
    acks: str
    compression: str
    linger_ms: float
    # Where consumers start, by partition.
    offsets: dict[int, int]


@dataclass(slots=True, kw_only=True)
class Report:
    """What one worker, or all workers of a kind, did since the last report or in all."""

    records: int = 0
    failed: int = 0
    failure: str = ""
    first_at: float | None = None
    last_at: float | None = None
    latencies: Latencies = field(default_factory=Latencies)
    is_last: bool = False

    def merge(self, other: "Report") -> None:
        self.records += other.records
        self.failed += other.failed
        self.failure = self.failure or other.failure
        self.first_at = _earlier(self.first_at, other.first_at)
        if other.last_at is not None:
            self.last_at = max(self.last_at or other.last_at, other.last_at)
        self.latencies.merge(other.latencies)

    @property
    def seconds(self) -> float:
        """From the first record to the last."""
        if self.first_at is None or self.last_at is None:
            return 0.0
        return max(self.last_at - self.first_at, 1e-9)

    def note(self, began_at: float, ended_at: float) -> None:
        self.records += 1
        self.first_at = _earlier(self.first_at, began_at)
        self.last_at = ended_at
        self.latencies.add(ended_at - began_at)


@dataclass(slots=True, kw_only=True)
class Result:
    produced: Report = field(default_factory=Report)
    consumed: Report = field(default_factory=Report)


def run_load(
    load: Load, *, advance: Callable[[int], None], is_stopped: Callable[[], bool]
) -> Result:
    """Run it to its end, or until somebody says stop; raises ClientError if it can't start."""
    result = Result()
    with _Workers(load) as workers:
        workers.await_ready(is_stopped)
        workers.start()
        deadline: float | None = None
        while workers.is_busy:
            before = result.produced.records
            workers.collect(result)
            advance(result.produced.records - before)
            if is_stopped():
                workers.stop_producers()
            if not workers.producers and deadline is None:
                deadline = time.monotonic() + (0.0 if is_stopped() else CATCH_UP_S)
            if deadline is not None and (
                result.consumed.records >= result.produced.records or time.monotonic() > deadline
            ):
                workers.stop_consumers()
    return result


class _Workers:
    """The processes and the pipes to them."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._processes: list[BaseProcess] = []
        self.producers: list[Connection[Any, Any]] = []
        self.consumers: list[Connection[Any, Any]] = []

    def __enter__(self) -> "_Workers":
        # Not a fork: threads of librdkafka do not survive one.
        context = get_context("spawn")
        for work, kind, number in self._jobs():
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(self._load, number, theirs), daemon=True, name=f"load-{number}"
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            kind.append(ours)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def _jobs(self) -> Iterator[tuple[Callable[..., None], "list[Connection[Any, Any]]", int]]:
        yield from ((_consume, self.consumers, n) for n in range(self._load.consumers))
        yield from ((_produce, self.producers, n) for n in range(self._load.producers))

    @property
    def is_busy(self) -> bool:
        return bool(self.producers or self.consumers)

    def await_ready(self, is_stopped: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for pipe in [*self.consumers, *self.producers]:
            while not pipe.poll(REPORT_S):
                if is_stopped():
                    raise ClientError("It was stopped before it started.")
                if time.monotonic() > deadline:
                    raise ClientError(f"A worker was not ready within {START_TIMEOUT_S:g} s.")
            said = _received(pipe)
            if said.failure:
                raise ClientError(f"A worker can't start: {said.failure.rstrip('.')}.")

    def start(self) -> None:
        for pipe in [*self.consumers, *self.producers]:
            pipe.send("go")

    def stop_producers(self) -> None:
        _tell(self.producers)

    def stop_consumers(self) -> None:
        _tell(self.consumers)

    def collect(self, result: Result) -> None:
        """What came since the last time, waiting a moment for the first of it."""
        for pipe in wait([*self.producers, *self.consumers], REPORT_S):
            assert isinstance(pipe, Connection)
            kind = self.producers if pipe in self.producers else self.consumers
            report = _received(pipe)
            (result.produced if kind is self.producers else result.consumed).merge(report)
            if report.is_last:
                kind.remove(pipe)


def _tell(pipes: "list[Connection[Any, Any]]") -> None:
    for pipe in pipes:
        try:
            pipe.send(_STOP)
        except OSError:
            # It has ended already, and its last report says how.
            continue


def _received(pipe: "Connection[Any, Any]") -> Report:
    try:
        report = pipe.recv()
    except (EOFError, OSError):
        return Report(failure="a worker ended without a message", failed=1, is_last=True)
    assert isinstance(report, Report)
    return report


class _Reporting:
    """A worker's side of its pipe."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self.now = Report()
        self.is_stopped = False
        self._pipe = pipe
        self._due = 0.0

    def ready(self) -> None:
        self._pipe.send(Report())
        self._pipe.recv()
        self._due = time.monotonic() + REPORT_S

    def tick(self) -> None:
        """Reports from time to time, and hears whether to stop."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + REPORT_S
        self._send()
        while self._pipe.poll(0):
            self.is_stopped = self._pipe.recv() == _STOP or self.is_stopped

    def fail(self, reason: str) -> None:
        self.now.failed += 1
        self.now.failure = self.now.failure or reason

    def last(self) -> None:
        self.now.is_last = True
        self._send()

    def _send(self) -> None:
        report, self.now = self.now, Report()
        self._pipe.send(report)


@contextmanager
def _working(pipe: "Connection[Any, Any]") -> Iterator[_Reporting]:
    # Ctrl-C goes to all processes of a terminal; the parent of this one says when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reporting = _Reporting(pipe)
    try:
        yield reporting
    except (EOFError, BrokenPipeError):
        # Nobody waits for the result any more.
        return
    except Exception as error:
        reporting.fail(str(error))
    reporting.last()


def _produce(load: Load, number: int, pipe: "Connection[Any, Any]") -> None:
    import confluent_kafka

    from penstock.client.producer import Producer

    with _working(pipe) as reporting:
        acks: Any = load.acks
        compression: Any = load.compression
        client = Producer(
            load.bootstrap, acks=acks, compression=compression, linger_ms=load.linger_ms
        )
        # Connections, leaders and a producer's number are there before the clock starts.
        client.send(load.topic, b"")
        client.flush()
        producer = client.raw
        reporting.ready()

        def delivered(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            if error is not None:
                reporting.fail(error.str())
                return
            ended = time.time()
            reporting.now.note(ended - (message.latency() or 0.0), ended)

        padding = bytes(load.value_bytes - _STAMP.size)
        for _ in _paced(load, number, reporting, producer):
            value = _STAMP.pack(time.time()) + padding
            while True:
                try:
                    producer.produce(load.topic, value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(SLICE_S)
                    reporting.tick()
        while producer.flush(REPORT_S):
            reporting.tick()


def _paced(load: Load, number: int, reporting: _Reporting, producer: Any) -> Iterator[None]:
    """One step for each record that this producer is to send, at the time it is due."""
    limit = None if load.count is None else _share(load.count, load.producers, number)
    rate = None if load.rate is None else load.rate / load.producers
    began, sent = time.monotonic(), 0
    while not reporting.is_stopped:
        elapsed = time.monotonic() - began
        if load.seconds is not None and elapsed >= load.seconds:
            return
        due = sent + SLICE if rate is None else int(elapsed * rate)
        for _ in range(due - sent):
            if limit is not None and sent >= limit:
                return
            yield
            sent += 1
        if limit is not None and sent >= limit:
            return
        producer.poll(0 if rate is None else SLICE_S)
        reporting.tick()


def _consume(load: Load, number: int, pipe: "Connection[Any, Any]") -> None:
    from penstock.client.consumer import RECORDS_PER_POLL_MAX, Consumer

    with _working(pipe) as reporting:
        client = Consumer(bootstrap=load.bootstrap, options={"enable.partition.eof": False})
        mine = {one: at for one, at in load.offsets.items() if one % load.consumers == number}
        client.assign({_place(load.topic, one): at for one, at in mine.items()})
        client.poll(0)
        consumer = client.raw
        reporting.ready()
        while not reporting.is_stopped:
            # A call for many waits until it has that many, which would make all of them older.
            first = consumer.poll(REPORT_S)
            rest = consumer.consume(RECORDS_PER_POLL_MAX - 1, 0) if first is not None else ()
            for message in () if first is None else (first, *rest):
                value = message.value()
                error = message.error()
                if error is not None:
                    if not error.retriable():
                        reporting.fail(error.str())
                elif value is not None and len(value) >= VALUE_BYTES_MIN:
                    reporting.now.note(_STAMP.unpack_from(value)[0], time.time())
            reporting.tick()
        client.close()


def _place(topic: str, partition: int) -> Any:
    from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def _share(total: int, parts: int, number: int) -> int:
    return total // parts + (number < total % parts)


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
