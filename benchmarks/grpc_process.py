"""Writes and reads over gRPC as fast as the answers come: a process of its own, so that it is not
measured.

`python -m benchmarks.grpc_process ADDRESS KIND CALLS SECONDS` prints as JSON: calls and records a
second, and the median and 99th percentile of a call in milliseconds. KIND is "single", "stream" or
"subscribe". Requests are encoded once: the client shall take as little of the machine as it can.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import grpc.aio
import uvloop

from benchmarks.latency import percentile
from penstock.frontdoor.grpc import messages

BATCH = 1_000
VALUE = b"x" * 100
WARM_UP_S = 0.3
UNDER_WAY = 8
CREDIT = 50_000
SERVICE = "/penstock.v1.Streams"


def request(topic: str, count: int) -> bytes:
    records = [messages.NewRecord(value=VALUE)] * count
    return messages.PublishRequest(topic=topic, records=records).SerializeToString()


async def single(channel: grpc.aio.Channel, seconds: float) -> list[float]:
    """How long each call took."""
    publish = channel.unary_unary(f"{SERVICE}/Publish")
    data = request("single", 1)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        await publish(data)
        took.append(time.perf_counter() - started)
    return took


async def stream(channel: grpc.aio.Channel, seconds: float) -> list[float]:
    """How long each request took, of which some are always under way."""
    call = channel.stream_stream(f"{SERVICE}/PublishStream")()
    data = request("stream", BATCH)
    room = asyncio.Semaphore(UNDER_WAY)
    sent: list[float] = []
    took: list[float] = []

    async def write() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await room.acquire()
            sent.append(time.perf_counter())
            await call.write(data)
        await call.done_writing()

    async def read() -> None:
        async for reply in call:
            assert messages.PublishStreamReply.FromString(reply).HasField("written")
            took.append(time.perf_counter() - sent[len(took)])
            room.release()

    await asyncio.gather(write(), read())
    assert len(took) == len(sent)
    return took


async def subscribe(channel: grpc.aio.Channel, seconds: float) -> int:
    """How many records came; there must be enough of them."""
    call = channel.stream_stream(f"{SERVICE}/Subscribe")()
    start = messages.StartSubscription(
        topic="stream", start=messages.Start(offset=0), credit=CREDIT
    )
    await call.write(messages.SubscribeRequest(start=start).SerializeToString())
    count = 0
    end = time.perf_counter() + seconds
    async for data in replies(call):
        got = len(messages.SubscribeReply.FromString(data).records.records)
        count += got
        if time.perf_counter() >= end:
            break
        await call.write(messages.SubscribeRequest(credit=got).SerializeToString())
    call.cancel()
    return count


async def replies(call: grpc.aio.StreamStreamCall) -> AsyncIterator[bytes]:
    while (data := await call.read()) is not grpc.aio.EOF:
        yield data


async def main(address: str, kind: str, calls: int, seconds: float) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        if kind == "subscribe":
            started = time.perf_counter()
            count = await subscribe(channel, seconds)
            print(json.dumps([0, count / (time.perf_counter() - started), 0, 0]))
            return
        run, records = (single, 1) if kind == "single" else (stream, BATCH)
        await run(channel, WARM_UP_S)
        started = time.perf_counter()
        found = await asyncio.gather(*(run(channel, seconds) for _ in range(calls)))
        rate = sum(map(len, found)) / (time.perf_counter() - started)
    took = [1000 * each for one in found for each in one]
    print(json.dumps([rate, rate * records, percentile(took, 0.5), percentile(took, 0.99)]))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
