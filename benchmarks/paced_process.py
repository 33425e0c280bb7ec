"""Single writes at an even rate over HTTP or gRPC, in a process of their own.

`python -m benchmarks.paced_process DOOR ADDRESS RATE SECONDS` prints the 99th percentile of a
write in milliseconds, counted from when it was due: one that waits for an earlier one waits.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from benchmarks.latency import percentile

TIMEOUT_S = 120.0
CONNECTIONS = 4
# What is sent at first, at the same rate, is not counted.
LEAD_IN_S = 0.5

Write = Callable[[], Awaitable[None]]


def measure_paced(door: str, address: str, *, rate: int, seconds: float) -> float:
    command = [sys.executable, "-m", "benchmarks.paced_process", door, address]
    outcome = subprocess.run(
        [*command, str(rate), str(seconds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S + seconds,
    )
    assert outcome.returncode == 0, outcome.stderr
    return float(outcome.stdout)


async def http_writer(address: str) -> Write:
    from benchmarks.http_process import request

    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data, _ = request("single")

    async def write() -> None:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]
        await reader.readexactly(int(length))

    return write


async def grpc_writer(address: str) -> Write:
    import grpc.aio

    from benchmarks.grpc_process import SERVICE, request

    channel = grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
    publish = channel.unary_unary(f"{SERVICE}/Publish")
    data = request("single", 1)

    async def write() -> None:
        await publish(data)

    return write


async def writes(write: Write, first_at: float, gap_s: float, end: float) -> list[float]:
    took = []
    due = first_at
    while due < end:
        await asyncio.sleep(due - time.perf_counter())
        await write()
        took.append(time.perf_counter() - due)
        due += gap_s
    return took


async def main(door: str, address: str, rate: int, seconds: float) -> None:
    make = http_writer if door == "http" else grpc_writer
    writers = [await make(address) for _ in range(CONNECTIONS)]
    for write in writers:
        await write()
    gap_s = CONNECTIONS / rate
    for length_s in (min(LEAD_IN_S, seconds), seconds):
        start = time.perf_counter()
        found = await asyncio.gather(
            *(
                writes(write, start + number / rate, gap_s, start + length_s)
                for number, write in enumerate(writers)
            )
        )
    print(percentile([1000 * each for one in found for each in one], 0.99))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
