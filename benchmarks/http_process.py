"""Writes over HTTP as fast as the answers come: a process of its own, so that it is not measured.

`python -m benchmarks.http_process ADDRESS KIND CONNECTIONS SECONDS [RATE]` prints as JSON: requests
and records a second, and the median and 99th percentile of a request in milliseconds. With a rate,
all connections together send so many requests a second at even times, unless answers come late.
"""

import asyncio
import json
import sys
import time

import uvloop

from benchmarks.latency import percentile

LINES = 5_000
VALUE = b'"' + b"x" * 98 + b'"'
WARM_UP_S = 0.3
_LENGTH = b"content-length: "


def request(kind: str) -> tuple[bytes, int]:
    """The bytes of a request, and how many records it has."""
    if kind == "single":
        body, count, content_type = b'{"records":[{"value":%s}]}' % VALUE, 1, "application/json"
    else:
        body, count = b"\n".join([b'{"value":%s}' % VALUE] * LINES), LINES
        content_type = "application/x-ndjson"
    head = (
        f"POST /v1/topics/{kind}/records HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body, count


async def write(
    host: str, port: int, data: bytes, seconds: float, gap_s: float = 0.0, first_s: float = 0.0
) -> list[float]:
    """How long each request took."""
    reader, writer = await asyncio.open_connection(host, port)
    took: list[float] = []
    due = time.perf_counter() + first_s
    end = due + seconds
    while (started := time.perf_counter()) < end:
        if started < due:
            await asyncio.sleep(due - started)
            started = due
        due += gap_s
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head[head.index(_LENGTH) + len(_LENGTH) :].split(b"\r", 1)[0]
        await reader.readexactly(int(length))
        took.append(time.perf_counter() - started)
    writer.close()
    return took


async def main(address: str, kind: str, connections: int, seconds: float, rate: float) -> None:
    host, _, port = address.rpartition(":")
    data, count = request(kind)
    await write(host, int(port), data, WARM_UP_S)
    # No gaps without a rate. Otherwise the connections take turns.
    step_s = 1 / rate if rate else 0.0
    started = time.perf_counter()
    found = await asyncio.gather(
        *(
            write(host, int(port), data, seconds, connections * step_s, number * step_s)
            for number in range(connections)
        )
    )
    rate = sum(map(len, found)) / (time.perf_counter() - started)
    took = [1000 * each for one in found for each in one]
    print(json.dumps([rate, rate * count, percentile(took, 0.5), percentile(took, 0.99)]))


if __name__ == "__main__":
    address, kind, connections, *numbers = sys.argv[1:]
    seconds, rate = [*map(float, numbers), 0.0][:2]
    uvloop.run(main(address, kind, int(connections), seconds, rate))
