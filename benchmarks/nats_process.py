"""Publishes to JetStream with its Python client, as fast as the answers come.

`python -m benchmarks.nats_process ADDRESS KIND TASKS SECONDS` prints what
`benchmarks.http_process` prints. Of the kind "single" each task awaits one publish after the other;
of "lines" it keeps thousands on their way.
"""

import asyncio
import json
import sys
import time

import nats
import uvloop

from benchmarks.http_process import LINES, VALUE
from benchmarks.latency import percentile


async def main(address: str, kind: str, tasks: int, seconds: float) -> None:
    connection = await nats.connect(f"nats://{address}")
    stream = connection.jetstream(publish_async_max_pending=LINES * tasks)
    await stream.add_stream(name=kind, subjects=[kind])
    end = time.perf_counter() + seconds

    async def one_by_one() -> list[float]:
        took = []
        while (started := time.perf_counter()) < end:
            await stream.publish(kind, VALUE)
            took.append(time.perf_counter() - started)
        return took

    async def in_bunches() -> list[float]:
        took = []
        while (started := time.perf_counter()) < end:
            await asyncio.gather(*[await stream.publish_async(kind, VALUE) for _ in range(LINES)])
            took.append(time.perf_counter() - started)
        return took

    work, count = (one_by_one, 1) if kind == "single" else (in_bunches, LINES)
    started = time.perf_counter()
    found = await asyncio.gather(*(work() for _ in range(tasks)))
    rate = sum(map(len, found)) / (time.perf_counter() - started)
    took = [1000 * each for one in found for each in one]
    await connection.close()
    print(json.dumps([rate, rate * count, percentile(took, 0.5), percentile(took, 0.99)]))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
