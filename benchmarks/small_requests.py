"""Produce requests of one message: what each costs, and whether all connections fare alike.

The cost of an unpipelined one is shown beside that of a server which does nothing but receive,
write, sync and reply: less is not possible on the same machine (decision 49).
"""

import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure, median
from benchmarks.latency import percentile
from benchmarks.modes import Mode
from benchmarks.probe import SIZE, connect, cpu_seconds, one_message_request, receive_frame
from penstock.client.child_broker import ChildBroker

TOPIC = "small-requests"
WARM_UP = 1_000
PIPELINED_US_MAX = 18.0
UNPIPELINED_US_MAX = 150.0
SLOWEST_MAX = 3.0
RECEIVED_MAX = 4096


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        with connect(broker.bootstrap) as connection:
            pipeline(connection, WARM_UP)
            rounds = [measure(broker, connection, mode.small_requests) for _ in range(mode.rounds)]
        single = unpipelined(broker, mode, folder)
        spread = [
            slowest_to_median(broker.bootstrap, mode.connections, mode.requests_per_connection)
            for _ in range(mode.rounds)
        ]
    yield figure("rate, median round", median([rate for rate, _ in rounds]), "requests/s")
    pipelined = [cpu_us for _, cpu_us in rounds]
    yield figure("broker CPU, median round", median(pipelined), "us/request", PIPELINED_US_MAX)
    yield figure("the same, worst round", max(pipelined), "us/request")
    for name, costs in single.items():
        bound = UNPIPELINED_US_MAX if name == BROKER else None
        used = median([cost.us for cost in costs])
        yield figure(f"CPU unpipelined, {name}", used, "us/request", bound)
        in_kernel = median([cost.system_us for cost in costs])
        yield figure("of it in the kernel", in_kernel, "us/request")
    ratio = median(
        [ours.us / bare.us for ours, bare in zip(single[BROKER], single[BARE], strict=True)]
    )
    name = f"CPU unpipelined, {BROKER} / {BARE}"
    yield figure(name, ratio, "")
    name = "p99 of the slowest of 500 connections / the median one's"
    yield figure(name, median(spread), "", SLOWEST_MAX)


def measure(
    broker: ChildBroker, connection: socket.socket, count: int, request: bytes | None = None
) -> tuple[float, float]:
    """Requests per second, and broker CPU microseconds per request."""
    before, started = cpu_seconds(broker.pid), time.perf_counter()
    pipeline(connection, count, request)
    seconds = time.perf_counter() - started
    return count / seconds, 1e6 * (cpu_seconds(broker.pid) - before) / count


def pipeline(connection: socket.socket, count: int, request: bytes | None = None) -> None:
    """Send without waiting for answers, and read one answer per request.

    All answers have the same size, so they are read by volume, which costs the client little.
    """
    requests = (request or one_message_request(TOPIC)) * count
    sender = threading.Thread(target=connection.sendall, args=(requests,))
    sender.start()
    answer = receive_frame(connection)
    left = (count - 1) * (SIZE.size + len(answer))
    while left:
        data = connection.recv(min(left, 1 << 20))
        if not data:
            raise ConnectionError("the broker closed the connection")
        left -= len(data)
    sender.join()


class Cost(NamedTuple):
    """CPU microseconds per request, and the part of them that the kernel took."""

    us: float
    system_us: float


BROKER = "the broker"
BARE = "a bare server"
BARE_WITHOUT_SYNC = "a bare server without sync"


def unpipelined(broker: ChildBroker, mode: Mode, folder: Path) -> dict[str, list[Cost]]:
    """Each request after the answer to the one before; broker and bare servers take turns."""
    with ExitStack() as running:
        sides = {BROKER: (broker.pid, running.enter_context(connect(broker.bootstrap)))}
        for name, syncs in ((BARE, True), (BARE_WITHOUT_SYNC, False)):
            path = folder / name.replace(" ", "-")
            pid, port = running.enter_context(bare_server(path, syncs=syncs))
            sides[name] = pid, running.enter_context(connect(f"127.0.0.1:{port}"))
        found: dict[str, list[Cost]] = {name: [] for name in sides}
        for _ in range(mode.rounds):
            for name, (pid, connection) in sides.items():
                found[name].append(measure_unpipelined(pid, connection, mode.unpipelined_requests))
        return found


@contextmanager
def bare_server(path: Path, *, syncs: bool) -> Iterator[tuple[int, int]]:
    """Its process and its port."""
    command = [sys.executable, "-m", "benchmarks.bare_server", str(path), str(int(syncs))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


def measure_unpipelined(pid: int, connection: socket.socket, count: int) -> Cost:
    request = one_message_request(TOPIC)
    process = psutil.Process(pid)
    before, system_before = cpu_seconds(pid), process.cpu_times().system
    for _ in range(count):
        connection.sendall(request)
        # In one call: an answer is short, and nothing follows it.
        if not connection.recv(RECEIVED_MAX):
            raise ConnectionError("the server closed the connection")
    system_s = process.cpu_times().system - system_before
    return Cost(1e6 * (cpu_seconds(pid) - before) / count, 1e6 * system_s / count)


class Caller:
    """One of many connections, with one request under way at a time."""

    def __init__(self, bootstrap: str, request: bytes, count: int) -> None:
        self.socket = connect(bootstrap)
        self._request = request
        self._left = count
        self._sent_at = 0.0
        self.latencies: list[float] = []

    def send(self) -> None:
        self._sent_at = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Takes an answer, and sends the next request; says whether that was the last answer."""
        receive_frame(self.socket)
        self.latencies.append(time.perf_counter() - self._sent_at)
        self._left -= 1
        if self._left:
            self.send()
        return self._left == 0


def slowest_to_median(bootstrap: str, connections: int, count: int) -> float:
    """All connections at once, each request after the answer to the one before it."""
    request = one_message_request(TOPIC)
    callers = [Caller(bootstrap, request, count) for _ in range(connections)]
    with selectors.DefaultSelector() as waiting:
        for caller in callers:
            waiting.register(caller.socket, selectors.EVENT_READ, caller)
        for caller in callers:
            caller.send()
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.data.receive():
                    waiting.unregister(key.fileobj)
    slow = [percentile(caller.latencies, 0.99) for caller in callers]
    for caller in callers:
        caller.socket.close()
    return max(slow) / median(slow)


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "one-message requests"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
