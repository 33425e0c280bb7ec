"""Followers of a topic by server-sent events who get nothing, until stdin ends.

`python -m benchmarks.idle_process ADDRESS TOPIC COUNT` prints "ready" once all of them are served.
"""

import asyncio
import sys

import uvloop


async def follow(host: str, port: int, topic: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /v1/topics/{topic}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return writer


async def main(address: str, topic: str, count: int) -> None:
    host, _, port = address.rpartition(":")
    writers = [await follow(host, int(port), topic) for _ in range(count)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for writer in writers:
        writer.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
