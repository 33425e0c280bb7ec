"""Sends mutated frames through a real node's Kafka door, and reports what that did to it.

Run as a process of its own, so that its memory can be measured: `python -m tests.wire.live_fuzz
--seed 1 --frames 500000 --data-dir DIR`. Prints one line of JSON.

The node is real: data directory, coordinators, handlers, door. The client is bare: each connection
is a socket pair handed to the door, gets a burst of mutated requests, and is read until the door
has served the burst or closed the connection.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

from penstock.config import Settings
from penstock.frontdoor.kafka.connection import KafkaConnection
from penstock.frontdoor.kafka.door import KafkaDoor
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.headers import decode_response_header
from penstock.protocol.kafka.schema import schema_of
from penstock.server import Node
from tests.wire.fuzz_frames import Mutator, base_frames, create_topic_frame

FRAMES_PER_BURST_MAX = 10
# Bursts under way at a time, each on a connection of its own.
CONNECTIONS = 16
# A burst that waits for something (a long poll, say) is left alone after this many looks.
PATIENCE = 400
WARM_UP_PART = 0.3
DECODE_EVERY = 16

_START = Struct(">hhi")
_LENGTH = Struct(">i")
_PEER = Endpoint("fuzz", 0)


class Watch(logging.Handler):
    """What must not happen, and what happened."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.frames = 0
        self.replies = 0
        self.closed = 0
        self.connections = 0
        self.complaints: list[str] = []
        # Replies by API.
        self.answered: dict[int, int] = {}
        self.loop_cpu_seconds_max = 0.0
        self.seen: dict[int, list[tuple[int, int, int]]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.complain(logging.Formatter().format(record))

    def complain(self, text: str) -> None:
        if len(self.complaints) < 20:
            self.complaints.append(text[-3000:])

    def tick(self, loop: asyncio.AbstractEventLoop, last: float | None = None) -> None:
        """The loop's thread may not burn much between two ticks, or one callback held it up."""
        now = time.thread_time()
        if last is not None:
            self.loop_cpu_seconds_max = max(self.loop_cpu_seconds_max, now - last)
        loop.call_later(0.02, self.tick, loop, now)


def watch_frames(watch: Watch) -> None:
    """Writes down the start of every frame that a connection handler takes."""
    serve: Callable[[KafkaConnection, memoryview, float], bool] = KafkaConnection.on_frame

    def on_frame(self: KafkaConnection, frame: memoryview, now: float) -> bool:
        watch.frames += 1
        seen = watch.seen.get(self.id)
        notes = seen is not None and len(frame) >= _START.size
        if notes:
            seen.append(_START.unpack_from(frame))
        is_taken = serve(self, frame, now)
        if not is_taken:
            watch.frames -= 1
            if notes:
                seen.pop()
        return is_taken

    KafkaConnection.on_frame = on_frame  # type: ignore[method-assign]


async def open_door(node: Node) -> KafkaDoor:
    """Starts the node, and catches the door that it opens on the way."""
    opened: list[KafkaDoor] = []
    bind = KafkaDoor.bind

    async def bind_and_tell(self: KafkaDoor, host: str, port: int) -> Endpoint:
        opened.append(self)
        return await bind(self, host, port)

    KafkaDoor.bind = bind_and_tell  # type: ignore[method-assign]
    await node.start()
    return opened[0]


class Burst:
    """One connection: what was sent, and what came back so far."""

    def __init__(self, door: KafkaDoor, watch: Watch, data: bytes, count: int) -> None:
        self._watch = watch
        self._count = count
        self._quiet = 0
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        door.serve(theirs, _PEER)
        self.id = next(reversed(door._connections))
        self._door = door
        self.seen: list[tuple[int, int, int]] = []
        watch.seen[self.id] = self.seen
        watch.connections += 1
        self._received = bytearray()
        self.is_closed = False
        self.sock.send(data)

    def read(self) -> None:
        try:
            while data := self.sock.recv(1 << 20):
                self._received += data
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self.is_closed = True

    def is_over(self) -> bool:
        """Closed, or all of it was served and answered."""
        if self.is_closed:
            return True
        connection = self._door._connections.get(self.id)
        is_busy = connection is not None and connection.is_busy
        # The last reply leaves one round after its call has ended.
        self._quiet = self._quiet + 1 if len(self.seen) >= self._count and not is_busy else 0
        return self._quiet > 2

    def finish(self) -> None:
        self.read()
        self.sock.close()
        del self._watch.seen[self.id]
        self._watch.closed += self.is_closed
        self._check_replies()

    def _check_replies(self) -> None:
        """Replies are whole frames, each for a request, in the order of the requests."""
        data, position = self._received, 0
        requests = iter(self.seen)
        while position + 4 <= len(data):
            (length,) = _LENGTH.unpack_from(data, position)
            reply = memoryview(data)[position + 4 : position + 4 + length]
            position += 4 + length
            if len(reply) < length:
                break
            self._watch.replies += 1
            self._check_reply(reply, requests)

    def _check_reply(self, reply: memoryview, requests: Any) -> None:
        (correlation_id,) = _LENGTH.unpack_from(reply)
        answered = next((request for request in requests if request[2] == correlation_id), None)
        if answered is None:
            self._watch.complain(f"a reply to nothing: {bytes(reply[:40])!r} {self.seen}")
            return
        self._watch.answered[answered[0]] = self._watch.answered.get(answered[0], 0) + 1
        if self._watch.replies % DECODE_EVERY == 0:
            _decode_reply(answered[0], answered[1], reply, self._watch)


def _decode_reply(api_key: int, version: int, reply: memoryview, watch: Watch) -> None:
    response = EXCHANGES[ApiKey(api_key)].response
    first, last = schema_of(response).versions
    if not first <= version <= last:
        version = 0
    try:
        _, position = decode_response_header(api_key, version, reply)
        decode(response, version, reply, position)
    except Exception as error:
        watch.complain(f"a reply to API {api_key} v{version} can't be read: {error!r}")


async def fuzz(door: KafkaDoor, watch: Watch, mutator: Mutator, frames: int) -> None:
    """Keeps some bursts under way until the door has served as many frames."""
    goal = watch.frames + frames
    bursts: list[tuple[Burst, int]] = []
    while watch.frames < goal or bursts:
        while len(bursts) < CONNECTIONS and watch.frames < goal:
            # A bad frame ends the calls before it, so some bursts are of one frame only.
            count = 1 + watch.connections % FRAMES_PER_BURST_MAX
            bursts.append((Burst(door, watch, mutator.burst(count), count), 0))
        await asyncio.sleep(0)
        left = []
        for burst, looks in bursts:
            burst.read()
            if burst.is_over() or looks > PATIENCE:
                burst.finish()
            else:
                left.append((burst, looks + 1))
        bursts = left


async def create_topic(door: KafkaDoor, watch: Watch) -> None:
    burst = Burst(door, watch, create_topic_frame(), 1)
    while not burst.is_over():
        await asyncio.sleep(0.001)
        burst.read()
    burst.finish()
    assert watch.replies == 1, "there is no topic to send frames to"


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run(seed: int, frames: int, data_dir: Path) -> dict[str, Any]:
    watch = Watch()
    logging.getLogger().addHandler(watch)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    watch_frames(watch)
    settings = Settings(
        data_dir=data_dir,
        kafka=Endpoint("127.0.0.1", 0),
        grpc=None,
        http=None,
        broker={"auto.create.topics.enable": "false"},
    )
    node = Node(settings)
    door = await open_door(node)
    mutator = Mutator(random.Random(seed), base_frames(random.Random(seed)))
    await create_topic(door, watch)
    # What was imported and built so far stays; the collector need not look at it again.
    gc.freeze()
    gc.set_threshold(20_000)
    watch.tick(asyncio.get_running_loop())
    started = time.perf_counter()
    await fuzz(door, watch, mutator, int(frames * WARM_UP_PART))
    resident_before = resident_bytes()
    await fuzz(door, watch, mutator, frames - int(frames * WARM_UP_PART))
    resident_after = resident_bytes()
    seconds = time.perf_counter() - started
    await node.stop()
    return {
        "frames": watch.frames,
        "replies": watch.replies,
        "answered": {ApiKey(key).name: count for key, count in sorted(watch.answered.items())},
        "connections": watch.connections,
        "closed_by_broker": watch.closed,
        "complaints": watch.complaints,
        "loop_cpu_seconds_max": round(watch.loop_cpu_seconds_max, 3),
        "resident_before": resident_before,
        "resident_after": resident_after,
        "budget_used": door.budget.used,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(time.process_time(), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(run(given.seed, given.frames, given.data_dir))))


if __name__ == "__main__":
    main()
