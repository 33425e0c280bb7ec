"""`AsyncProducer`, `AsyncConsumer` and `AsyncAdmin`: the same as without Async, for asyncio.

librdkafka has no asyncio. One thread hears of deliveries and hands them to the event loop in
bunches, another waits for records when there are none at hand. So nothing here costs a thread, or a
change of threads, for each record. confluent-kafka's own asyncio client was measured beside it: a
record that is sent alone takes two seconds there, many of them take twice as long as here, and its
consumer changes threads for every record (decision 48).
"""

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import confluent_kafka

from penstock.client.admin import Admin, ClusterDescription
from penstock.client.configs import Configs
from penstock.client.connection import ANSWER_TIMEOUT_S
from penstock.client.consumer import (
    COMMIT_TIMEOUT_S,
    RECORDS_PER_POLL_MAX,
    ConsumedRecord,
    Consumer,
)
from penstock.client.errors import ClientError
from penstock.client.groups import Groups
from penstock.client.offsets import Offsets
from penstock.client.positions import Bound
from penstock.client.producer import (
    DELIVERY_TIMEOUT_S,
    GRACE_S,
    LINGER_MS,
    Acks,
    Compression,
    Delivery,
    Producer,
    delivery_of,
    new_record,
)
from penstock.client.queues import Queues
from penstock.client.topics import Topics
from penstock.client.values import Headers, Value
from penstock.model.ids import TopicPartition

# How long a thread waits at most before it looks whether to end.
LOOK_S = 0.25
# The event loop gets its turn after this many records that were at hand.
RECORDS_PER_TURN_MAX = 100

Part = TypeVar("Part")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class AsyncProducer:
    """The same for asyncio.

        async with AsyncProducer() as producer:
            sending = await producer.send("readings", {"celsius": 21.5}, key="kitchen")
            print((await sending).offset)

    `send` waits for room and returns a future of the delivery. What is not awaited
    is awaited at the end of the block.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        linger_ms: float = LINGER_MS,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._producer = Producer(
            bootstrap,
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            delivery_timeout_s=delivery_timeout_s,
            options=options,
        )
        # Deliveries that the thread has heard of and the loop has not.
        self._heard: deque[tuple[asyncio.Future[Delivery], Any, confluent_kafka.Message]] = deque()
        self._is_called = False
        self._is_closing = False
        # Who waits for room is served in turn.
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener = threading.Thread(target=self._listen, name="producer", daemon=True)

    @property
    def sent(self) -> int:
        return self._producer.sent

    @property
    def delivered(self) -> int:
        return self._producer.delivered

    @property
    def failed(self) -> int:
        return self._producer.failed

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._listener.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._is_closing = True
            await asyncio.to_thread(self._end)
            self._settle()

    async def send(
        self,
        topic: str,
        value: Value,
        *,
        key: Value = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Queue a record, once there is room for it. The future raises DeliveryFailed."""
        if self._loop is None or self._is_closing:
            raise ClientError("An AsyncProducer sends inside its `async with` block.")
        record = new_record(topic, value, key, headers, partition, timestamp_ms)
        sending: asyncio.Future[Delivery] = self._loop.create_future()
        span = self._producer.begin_span(topic, record)

        def report(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            self._producer.end_span(span, error, message)
            self._heard.append((sending, error, message))
            if not self._is_called:
                self._is_called = True
                self._call_loop()

        try:
            if self._turn.locked() or not self._producer.queue(topic, record, report):
                async with self._turn:
                    self._room.clear()
                    while not self._producer.queue(topic, record, report):
                        await self._room.wait()
                        self._room.clear()
        except BaseException as error:
            self._producer.abandon_span(span, error)
            raise
        return sending

    async def send_and_wait(
        self,
        topic: str,
        value: Value,
        *,
        key: Value = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """The same, and wait for the acknowledgement."""
        sending = await self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await sending

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is acknowledged; see `Producer.flush`."""
        limit_s = self._producer.delivery_timeout_s + GRACE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        raw = self._producer.raw
        while await asyncio.to_thread(raw.flush, LOOK_S) and time.monotonic() < deadline:
            pass
        self._settle()
        self._producer.check_delivered()

    def _listen(self) -> None:
        while not self._is_closing:
            self._producer.raw.poll(LOOK_S)

    def _end(self) -> None:
        self._producer.close()
        self._listener.join()

    def _call_loop(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            # The loop was closed before its producer: nobody waits for deliveries.
            self._is_closing = True

    def _settle(self) -> None:
        """Hands over what the thread has heard of; in the loop."""
        # First: what is heard from here on calls again.
        self._is_called = False
        while self._heard:
            sending, error, message = self._heard.popleft()
            if error is not None:
                failure = self._producer.note_failure(error, message)
                if not sending.done():
                    sending.set_exception(failure)
                    # Nobody has to look at it: a flush raises too.
                    sending.exception()
            else:
                self._producer.note_delivery()
                if not sending.done():
                    sending.set_result(delivery_of(message))
        self._room.set()


class AsyncConsumer:
    """The same for asyncio.

    async with AsyncConsumer("readings", group="controllers") as consumer:
        async for record in consumer:
            await adjust(record.key, record.json())
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        start: Bound | Mapping[int, Bound] = "earliest",
        bootstrap: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._consumer = Consumer(
            topics, group=group, start=start, bootstrap=bootstrap, options=options
        )
        # Waits for records and for answers.
        self._thread = ThreadPoolExecutor(1, "consumer")
        self._taking: Future[list[ConsumedRecord]] | None = None
        self._is_stopping = asyncio.Event()
        self._handles_sigterm = False
        # Then polls may wait for answers of the broker, which the loop must not.
        self._is_slow = self._consumer.assigns_slowly

    @property
    def assigned(self) -> set[TopicPartition]:
        return self._consumer.assigned

    async def __aenter__(self) -> Self:
        await self._in_thread(self._consumer.__enter__)
        self._handles_sigterm = self._handle_sigterm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handles_sigterm:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._thread.shutdown()
        self._consumer.close()

    async def poll(
        self, timeout_s: float = LOOK_S, count_max: int = RECORDS_PER_POLL_MAX
    ) -> list[ConsumedRecord]:
        """What has arrived, waiting at most `timeout_s` for the first record.

        What arrives for a task that was cancelled meanwhile is for the next one: it is not lost.
        """
        if self._taking is None:
            self._taking = self._thread.submit(self._consumer.poll, timeout_s, count_max)
        try:
            records = await asyncio.shield(asyncio.wrap_future(self._taking))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._taking = None
            raise
        self._taking = None
        return records

    def done(self, records: Sequence[ConsumedRecord]) -> None:
        """Mark records as processed: the group's committed offset will move past them."""
        self._consumer.done(records)

    async def commit(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Store now how far the group is; see `Consumer.commit`."""
        await self._in_thread(partial(self._consumer.commit, timeout_s))

    def stop(self) -> None:
        """Loops end after what they are at. For other threads: `loop.call_soon_threadsafe`."""
        self._is_stopping.set()

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        in_turn = 0
        while not self._is_stopping.is_set():
            records = self._at_hand()
            in_turn += 1
            if not records:
                records = await self.poll(LOOK_S, RECORDS_PER_TURN_MAX if self._is_slow else 1)
            elif in_turn % RECORDS_PER_TURN_MAX == 0:
                await asyncio.sleep(0)
            for record in records:
                span = self._consumer.begin_span(record)
                try:
                    yield record
                finally:
                    self._consumer.end_span(span)
                self._consumer.done([record])

    async def batches(self) -> AsyncIterator[list[ConsumedRecord]]:
        """What has arrived, up to 1,000 records at a time, committed when the next is asked for."""
        while not self._is_stopping.is_set():
            records = await self.poll()
            if records:
                span = self._consumer.begin_batch_span(records)
                try:
                    yield records
                finally:
                    self._consumer.end_span(span)
                await self._in_thread(partial(self._consumer.settle, records))

    def _at_hand(self) -> list[ConsumedRecord]:
        """What librdkafka has fetched already needs no thread."""
        return [] if self._is_slow or self._taking is not None else self._consumer.poll(0, 1)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _handle_sigterm(self) -> bool:
        """Not if the program does it itself, or is not the one that gets signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        return True


class _Offloaded(Generic[Part]):
    """Calls to a part of an Admin, each in a thread, one after the other."""

    def __init__(self, part: Part, turn: asyncio.Lock) -> None:
        self._part = part
        self._turn = turn


def _offloaded(
    method: Callable[Concatenate[Part, Arguments], Answer],
) -> Callable[Concatenate[_Offloaded[Part], Arguments], Coroutine[Any, Any, Answer]]:
    async def call(
        self: _Offloaded[Part], /, *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Answer:
        async with self._turn:
            return await asyncio.to_thread(method, self._part, *arguments, **options)

    # For `help`.
    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncTopics(_Offloaded[Topics]):
    all = _offloaded(Topics.all)
    partitions = _offloaded(Topics.partitions)
    describe = _offloaded(Topics.describe)
    settings = _offloaded(Topics.settings)
    create = _offloaded(Topics.create)
    delete = _offloaded(Topics.delete)
    add_partitions = _offloaded(Topics.add_partitions)
    alter = _offloaded(Topics.alter)


class AsyncOffsets(_Offloaded[Offsets]):
    earliest = _offloaded(Offsets.earliest)
    latest = _offloaded(Offsets.latest)
    resolve = _offloaded(Offsets.resolve)
    clamp = _offloaded(Offsets.clamp)
    trim = _offloaded(Offsets.trim)


class AsyncGroups(_Offloaded[Groups]):
    all = _offloaded(Groups.all)
    overview = _offloaded(Groups.overview)
    describe = _offloaded(Groups.describe)
    committed = _offloaded(Groups.committed)
    check_inactive = _offloaded(Groups.check_inactive)
    set_offsets = _offloaded(Groups.set_offsets)
    delete = _offloaded(Groups.delete)


class AsyncConfigs(_Offloaded[Configs]):
    all = _offloaded(Configs.all)
    one = _offloaded(Configs.one)
    alter = _offloaded(Configs.alter)


class AsyncQueues(_Offloaded[Queues]):
    all = _offloaded(Queues.all)
    describe = _offloaded(Queues.describe)
    begin = _offloaded(Queues.begin)


class AsyncAdmin:
    """The same for asyncio.

    async with AsyncAdmin() as admin:
        await admin.topics.create("readings", partitions=3, if_missing=True)
    """

    topics: AsyncTopics
    settings: AsyncConfigs
    groups: AsyncGroups
    queues: AsyncQueues
    offsets: AsyncOffsets

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._arguments: Any = (bootstrap, timeout_s, options)
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        bootstrap, timeout_s, options = self._arguments
        self._admin = await asyncio.to_thread(
            Admin, bootstrap, timeout_s=timeout_s, options=options
        )
        self.topics = AsyncTopics(self._admin.topics, self._turn)
        self.settings = AsyncConfigs(self._admin.settings, self._turn)
        self.groups = AsyncGroups(self._admin.groups, self._turn)
        self.queues = AsyncQueues(self._admin.queues, self._turn)
        self.offsets = AsyncOffsets(self._admin.offsets, self._turn)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.close()

    async def cluster(self) -> ClusterDescription:
        """The cluster's id, its nodes, and which of them is the controller."""
        async with self._turn:
            return await asyncio.to_thread(self._admin.cluster)
