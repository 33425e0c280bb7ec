"""Clients that nobody wants, until stdin ends: a process of its own, so that it is not measured.

`python -m benchmarks.hostile_process HTTP GRPC STREAMS` prints "ready" when all of them are at it:
as many streams of gRPC as given say nothing, a fifth as many connections send a request byte by
byte, a fifth a body without an end, and a few follow a topic and never read. Beside them, some come
and go all the time: half requests that are aborted, and bytes that are not a protocol. They pause
in between, because what is measured is what they hold up and not how much of the machine they take.
"""

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Awaitable, Callable

import grpc.aio
import uvloop

TOPIC = "hostile"
DRIP_S = 1.0
STALL_S = 30.0
# Of each of those that come and go.
PAUSE_S = 0.05
STREAMS_PER_CHANNEL = 50
RESET = struct.pack("ii", 1, 0)
HEAD = b"POST /v1/topics/%s/records HTTP/1.1\r\nHost: localhost\r\n" % TOPIC.encode()
HEAD += b"Content-Type: application/json\r\n"
RECORD = b'{"records":[{"value":"' + b"x" * 1_000 + b'"}]}'
EVENTS = (
    b"GET /v1/topics/%s/events?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n" % TOPIC.encode()
)

Connect = Callable[[], Awaitable[socket.socket]]


async def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    return sock


async def again_and_again(
    connect: Connect, attack: Callable[[socket.socket], Awaitable[None]]
) -> None:
    """They are cut off, and come back."""
    while True:
        with contextlib.suppress(OSError), await connect() as sock:
            await attack(sock)
        await asyncio.sleep(PAUSE_S)


async def drip(sock: socket.socket) -> None:
    for byte in HEAD:
        await asyncio.get_running_loop().sock_sendall(sock, bytes((byte,)))
        await asyncio.sleep(DRIP_S)


async def endless(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        await loop.sock_sendall(sock, b"400\r\n" + b" " * 1_024 + b"\r\n")
        await asyncio.sleep(DRIP_S)


async def unread(sock: socket.socket) -> None:
    """A follower that never reads; it comes back some time after it was cut off."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    await asyncio.get_running_loop().sock_sendall(sock, EVENTS)
    await asyncio.sleep(STALL_S)


async def aborted(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    half = HEAD + b"Content-Length: %d\r\n\r\n" % len(RECORD) + RECORD[:500]
    await asyncio.get_running_loop().sock_sendall(sock, half)


async def garbage(sock: socket.socket) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, bytes(range(256)))
    await asyncio.sleep(PAUSE_S)


async def written_to(sock: socket.socket) -> None:
    """Writes what the others do not read."""
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(sock, HEAD + b"Content-Length: %d\r\n\r\n" % len(RECORD) + RECORD)
        if not await loop.sock_recv(sock, 65_536):
            return
        await asyncio.sleep(PAUSE_S)


async def silent_streams(address: str, count: int) -> list[grpc.aio.Channel]:
    channels = []
    for number in range(count):
        if number % STREAMS_PER_CHANNEL == 0:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channels.append(grpc.aio.insecure_channel(address, options))
            await channels[-1].channel_ready()
        call = channels[-1].stream_stream("/penstock.v1.Streams/Subscribe")()
        await call.wait_for_connection()
    return channels


async def main(http: str, grpc_address: str, streams: int) -> None:
    few, some = max(1, streams // 50), max(1, streams // 5)

    def to_http() -> Awaitable[socket.socket]:
        return connected(http)

    def to_grpc() -> Awaitable[socket.socket]:
        return connected(grpc_address)

    attacks = [(to_http, attack) for attack in (drip, endless) for _ in range(some)]
    attacks += [(to_http, unread)] * few
    attacks += [(to_http, written_to), (to_http, aborted), (to_grpc, aborted)]
    attacks += [(to_http, garbage), (to_grpc, garbage)]
    tasks = [asyncio.ensure_future(again_and_again(*attack)) for attack in attacks]
    channels = await silent_streams(grpc_address, streams)
    print("ready", flush=True)
    stdin = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    ended, _ = await asyncio.wait([stdin, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        # An attack that ends by itself is a bug.
        task.result()
    for channel in channels:
        await channel.close(0)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
