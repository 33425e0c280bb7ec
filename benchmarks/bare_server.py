"""The least that a durable answer costs here: a server that receives, writes, syncs and replies.

    python -m benchmarks.bare_server FILE 1

It has what every broker in Python needs that does not block its event loop: the loop receives, a
thread writes and syncs, the loop sends. With 0 instead of 1 the sync is left out. It prints its
port first. What a broker costs beyond it is the broker's own.
"""

import asyncio
import os
import socket
import sys

from penstock.server.threads import Threads

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

RECEIVED_MAX = 4096
# As long as the answer to a produce of one message.
REPLY = b"r" * 65


class BareServer:
    def __init__(self, path: str, *, syncs: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = Threads("bare", 1)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._position = 0
        self._syncs = syncs

    def serve(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(connection.fileno(), self._receive, connection)

    def _receive(self, connection: socket.socket) -> None:
        data = connection.recv(RECEIVED_MAX)
        if data:
            self._threads.start(self._store, connection, data)
        else:
            self._loop.remove_reader(connection.fileno())
            connection.close()

    def _store(self, connection: socket.socket, data: bytes) -> None:
        """In the thread."""
        os.pwrite(self._file, data, self._position)
        self._position += len(data)
        if self._syncs:
            os.fdatasync(self._file)
        self._loop.call_soon_threadsafe(connection.send, REPLY)


async def serve(path: str, *, syncs: bool) -> None:
    """Until the process that started it is gone, and with it the other end of its stdin."""
    server = BareServer(path, syncs=syncs)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        loop.add_reader(listener.fileno(), server.serve, listener)
        loop.add_reader(sys.stdin.fileno(), ended.set)
        print(listener.getsockname()[1], flush=True)
        await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(sys.argv[1], syncs=sys.argv[2] == "1"))
