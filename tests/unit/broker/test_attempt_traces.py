"""Each delivery attempt of a record with `traceparent` becomes a span of its trace."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import attempt_traces
from penstock.broker.attempt_traces import AttemptTraces, TracedQueue
from penstock.broker.queues import AckType
from penstock.model.errors import Reason, Refused
from penstock.model.lease_tokens import door_member, proof_of
from penstock.model.trace_context import TraceContext, headers_of
from penstock.observe.tracing import PastSpan, SpanCounts
from penstock.queues.settling import Claim, Verb, settle
from penstock.records.batch import build_batch
from penstock.records.compression import Codec
from penstock.records.record import Record
from penstock.records.traced import traced_in
from tests.unit.broker.letters_rig import LettersNode
from tests.unit.broker.queue_rig import G, M
from tests.unit.clocks import ManualClock
from tests.unit.lone_node import run
from tests.unit.replication.rig import START_MS

TRACE = TraceContext(trace_id=7, span_id=8, is_sampled=True)


class InTurn(Executor):
    """Runs its work when a test says so, as a thread that may be late."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        self.waiting.append(partial(work, *args, **options))
        return Future()

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class TracedNode(LettersNode):
    """Its queues are traced; what the thread has to do waits until `spans` is asked for."""

    clock: ManualClock

    def trace(self) -> None:
        self.counts = SpanCounts()
        self.thread = InTurn()
        self._past: list[PastSpan] = []
        self._ns = 0
        traces = AttemptTraces(
            self._past.append, self.counts, executor=self.thread, now_ns=self._now_ns
        )
        self.queues._make = partial(TracedQueue, traces=traces)
        self.queues._letters._traces = traces

    def _now_ns(self) -> int:
        self._ns += 1
        return self._ns

    def spans(self) -> list[tuple[str, Any, Any, Any]]:
        """Names, offsets, attempts and outcomes; each once."""
        self.thread.run()
        found, self._past[:] = list(self._past), []
        assert all(span.parent == TRACE and span.began_ns <= span.ended_ns for span in found)
        return [
            (
                span.name,
                span.attributes["messaging.kafka.offset"],
                span.attributes["penstock.attempt"],
                span.attributes.get("penstock.outcome"),
            )
            for span in found
        ]

    async def send_traced(self, *values: bytes, context: TraceContext = TRACE) -> None:
        headers = headers_of(context)
        await self.send_records(
            *(Record(timestamp_ms=START_MS, value=value, headers=headers) for value in values)
        )


def on_traced(scenario: Callable[[TracedNode], Any], path: Path, **configs: str) -> None:
    async def whole() -> None:
        clock = ManualClock()
        node = await TracedNode.with_letters(path, clock=clock, **configs)
        node.clock = clock
        node.trace()
        await scenario(node)
        await node.stop()

    run(whole)


def test_an_attempt_ends_as_the_consumer_says(tmp_path: Path) -> None:
    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"a", b"b")
        await node.send(b"without")
        await node.poll()
        assert node.spans() == []
        assert await node.acknowledge(0, 0) is None
        assert await node.acknowledge(1, 1, AckType.RELEASE) is None
        assert await node.acknowledge(2, 2) is None
        await node.poll()
        # Still at work.
        assert await node.acknowledge(1, 1, AckType.RENEW) is None
        assert node.spans() == [("deliver jobs", 0, 1, "ack"), ("deliver jobs", 1, 1, "nack")]
        assert await node.acknowledge(1, 1) is None
        assert node.spans() == [("deliver jobs", 1, 2, "ack")]
        assert (node.counts.untracked, node.counts.unwatched) == (0, 0)

    on_traced(scenario, tmp_path)


def test_leases_end_without_the_consumer_too(tmp_path: Path) -> None:
    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"a")
        await node.poll()
        node.clock.ms += 60_000
        node.led.expire()
        await node.led.stored()
        assert node.spans() == [("deliver jobs", 0, 1, "expire")]
        await node.poll()
        await node.queues.release(G, M)
        assert node.spans() == [("deliver jobs", 0, 2, "session end")]
        await node.poll()
        node.led.undo(M)
        await node.led.stored()
        assert node.spans() == [("deliver jobs", 0, 3, "undo")]
        await node.poll()
        node.led.close(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "moved"))
        assert node.spans() == [("deliver jobs", 0, 3, "leader change")]

    on_traced(scenario, tmp_path)


def test_tokens_of_doors_end_attempts(tmp_path: Path) -> None:
    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"a", b"b")
        member_id = door_member("secret")
        await node.poll(member_id)
        good = Claim(0, 1, proof_of(member_id, 0, 1))
        forged = Claim(1, 1, b"x" * len(good.proof))
        _, commit = settle(node.led, Verb.ACK, [forged, good])
        await commit
        assert node.spans() == [("deliver jobs", 0, 1, "ack")]

    on_traced(scenario, tmp_path)


@pytest.mark.parametrize("copies", ["true", "false"])
def test_a_dead_letter_keeps_its_place_in_the_trace(tmp_path: Path, copies: str) -> None:
    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"poison")
        await node.poll()
        await node.reject(0, 0)
        await node.until_sent(1)
        assert node.spans() == [
            ("deliver jobs", 0, 1, "reject"),
            ("dead-letter jobs", 0, 1, None),
        ]
        (letter,) = node.letters()
        assert letter.headers[0] == headers_of(TRACE)[0]
        assert letter.value == (b"poison" if copies == "true" else None)

    on_traced(scenario, tmp_path, errors_deadletterqueue_copy_record_enable=copies)


@pytest.mark.parametrize("chunk_bytes", [61, 100, 300, 1_000])
def test_batches_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(attempt_traces, "CHUNK_BYTES", chunk_bytes)

    async def scenario(node: TracedNode) -> None:
        for size in (1, 500, 2):
            await node.send_traced(b"x" * size, b"y")
        await node.poll(records_max=4, is_exact=True)
        assert await node.acknowledge(0, 3) is None
        assert [offset for _, offset, *_ in node.spans()] == [0, 1, 2, 3]
        assert node.counts.untracked == 0

    on_traced(scenario, tmp_path)


def test_what_the_producer_does_not_want_traced_is_not(tmp_path: Path) -> None:
    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"a", context=TRACE._replace(is_sampled=False))
        await node.poll()
        assert await node.acknowledge(0, 0) is None
        assert node.spans() == []

    on_traced(scenario, tmp_path)


def test_what_is_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a thread that is late nor attempts without end take memory without end."""
    monkeypatch.setattr(attempt_traces, "NOTES_MAX", 2)
    monkeypatch.setattr(attempt_traces, "OPEN_MAX", 1)

    async def scenario(node: TracedNode) -> None:
        await node.send_traced(b"a", b"b")
        await node.poll()
        assert await node.acknowledge(0, 0) is None
        assert await node.acknowledge(1, 1, AckType.RELEASE) is None
        assert node.counts.unwatched == 1
        assert node.spans() == [("deliver jobs", 0, 1, "ack")]
        assert node.counts.untracked == 1

    on_traced(scenario, tmp_path)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_compressed_batches_are_looked_into(codec: Codec) -> None:
    headers = headers_of(TRACE)
    records = [Record(offset=at, timestamp_ms=1, value=b"v", headers=headers) for at in range(3)]
    data = build_batch(records, codec=codec)
    assert list(traced_in(data, 1)) == [(0, TRACE), (1, TRACE)]
    # Cut off: what is there counts.
    assert list(traced_in(data + data[:-1], 9)) == [(at, TRACE) for at in range(3)]
