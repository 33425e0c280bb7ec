"""Writes over HTTP as fast as the answers come: a process of its own, so that it is not measured.

`python -m benchmarks.http_process ADDRESS KIND CONNECTIONS SECONDS` prints as JSON: requests and
records a second, and the median and 99th percentile of a request in milliseconds.
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


async def write(host: str, port: int, data: bytes, seconds: float) -> list[float]:
    """How long each request took."""
    reader, writer = await asyncio.open_connection(host, port)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head[head.index(_LENGTH) + len(_LENGTH) :].split(b"\r", 1)[0]
        await reader.readexactly(int(length))
        took.append(time.perf_counter() - started)
    writer.close()
    return took


async def main(address: str, kind: str, connections: int, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    data, count = request(kind)
    await write(host, int(port), data, WARM_UP_S)
    started = time.perf_counter()
    found = await asyncio.gather(
        *(write(host, int(port), data, seconds) for _ in range(connections))
    )
    rate = sum(map(len, found)) / (time.perf_counter() - started)
    took = [1000 * each for one in found for each in one]
    print(json.dumps([rate, rate * count, percentile(took, 0.5), percentile(took, 0.99)]))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
