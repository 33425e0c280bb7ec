"""Records as an Arrow stream: the columns of `read_arrow`, for programs that work on tables.

The stream goes from the start to the end that partitions had when they were asked for, in pieces of
bounded size. Batches are decoded in a thread of this process, while the next ones come from the
broker; neither loop waits for it. pyarrow and numpy are an extra, and loaded by the first request.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.doors.calls import Batches, TopicInfo
from penstock.columns.layout import COLUMNS
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.limits import ARROW_READ_BYTES_MAX, ARROW_RECORDS_MAX
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import Answer, Cut, Request
from penstock.frontdoor.remote.reading import EARLIEST, LATEST, end_of
from penstock.model.errors import Reason, Refused
from penstock.records.errors import CorruptBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.columns.decoding import Decoder

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
# What ends a stream: the mark of a message, and that it is empty.
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Stretch(NamedTuple):
    """The offsets of a partition from `start` up to `stop`, which is not part of it."""

    partition: int
    start: int
    stop: int


async def arrow_answer(
    context: Context, request: Request, topic: TopicInfo, starts: Mapping[int, int]
) -> Answer:
    """From an offset of each partition on. What is wrong with one is said now: later, only a
    broken stream could say it."""
    _check_installed()
    columns = _columns(request)
    limit = request.number("limit", ARROW_RECORDS_MAX, 1, ARROW_RECORDS_MAX)
    stretches = [
        await _stretch(context, topic, partition, start) for partition, start in starts.items()
    ]
    context.open_arrow()
    pieces = _Stream(context, request, topic, columns, limit).pieces(stretches)
    # Started here, so that its end is reached even if nobody ever reads from it.
    await anext(pieces)
    return Answer(200, b"", ARROW_TYPE, {}, pieces)


def _check_installed() -> None:
    if find_spec("pyarrow") is None or find_spec("numpy") is None:
        detail = "This node can't answer with Arrow: it needs pip install 'penstock-mq[arrow]'."
        raise Problem(406, detail, reason="not_acceptable")


def _columns(request: Request) -> tuple[str, ...]:
    given = request.text("columns")
    if given is None:
        return COLUMNS
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in COLUMNS:
            detail = f"There is no column {name[:100]!r}; there are: {', '.join(COLUMNS)}."
            raise Problem(400, detail)
    return names


async def _stretch(context: Context, topic: TopicInfo, partition: int, start: int) -> Stretch:
    first = await context.reader.find(topic, partition, EARLIEST)
    stop = await context.reader.find(topic, partition, LATEST)
    if not first <= start <= stop:
        detail = f"Partition {partition} has offsets from {first} to {stop}, so not {start}."
        raise Refused(Reason.OFFSET_OUT_OF_RANGE, detail)
    return Stretch(partition, start, stop)


class _Stream:
    def __init__(
        self,
        context: Context,
        request: Request,
        topic: TopicInfo,
        columns: Sequence[str],
        limit: int,
    ) -> None:
        self._context = context
        self._gone = asyncio.ensure_future(request.gone())
        self._topic = topic
        self._columns = columns
        self._left = limit

    async def pieces(self, stretches: Sequence[Stretch]) -> AsyncGenerator[bytes, None]:
        try:
            yield b""
            yield await asyncio.to_thread(_head, self._columns)
            for each in stretches:
                if self._left and each.start < each.stop:
                    async with aclosing(self._read(each)) as pieces:
                        async for piece in pieces:
                            yield piece
            yield _END
        except (Refused, CorruptBatch) as error:
            # The head is gone, so this can't become a problem. A reader notices a stream that is
            # cut, and could not notice one that ends early.
            raise Cut(f"the Arrow stream of topic {self._topic.name}: {error}") from None
        finally:
            self._gone.cancel()
            self._context.close_arrow()

    async def _read(self, stretch: Stretch) -> AsyncGenerator[bytes, None]:
        decoder = await asyncio.to_thread(_decoder, self._topic.name, stretch, self._columns)
        reading = self._ask(stretch.partition, stretch.start)
        try:
            is_last = False
            while self._left and not is_last:
                batches = (await reading).batches
                end = await asyncio.to_thread(end_of, batches)
                is_last = not batches or end >= stretch.stop
                if not is_last:
                    # It comes while these are decoded and sent.
                    reading = self._ask(stretch.partition, end)
                async for piece in self._sent(decoder.decode(memoryview(batches))):
                    yield piece
            async for piece in self._sent(decoder.finish()):
                yield piece
        finally:
            reading.cancel()

    def _ask(self, partition: int, offset: int) -> "asyncio.Task[Batches]":
        asked = self._context.reader.batches(self._topic, partition, offset, ARROW_READ_BYTES_MAX)
        return asyncio.get_running_loop().create_task(asked)

    async def _sent(self, decoded: "Iterator[pa.RecordBatch]") -> AsyncGenerator[bytes, None]:
        """One batch after the other: what is decoded waits until what was before it has left."""
        while self._left:
            if self._gone.done() or self._context.stopping.done():
                raise Cut("the client is gone, or this process is to end")
            piece = await asyncio.to_thread(self._next, decoded)
            if piece is None:
                return
            yield piece

    def _next(self, decoded: "Iterator[pa.RecordBatch]") -> bytes | None:
        """In a thread."""
        batch = next(decoded, None)
        if batch is None:
            return None
        batch = batch.slice(0, self._left)
        self._left -= batch.num_rows
        piece: bytes = batch.serialize().to_pybytes()
        return piece


def _head(columns: Sequence[str]) -> bytes:
    from penstock.columns.arrow_layout import arrow_schema

    head: bytes = arrow_schema(columns).serialize().to_pybytes()
    return head


def _decoder(topic: str, stretch: Stretch, columns: Sequence[str]) -> "Decoder":
    from penstock.columns.decoding import Decoder

    return Decoder(
        topic=topic,
        partition=stretch.partition,
        columns=columns,
        start=stretch.start,
        stop=stretch.stop,
    )
