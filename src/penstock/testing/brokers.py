"""The brokers that the fixtures hand out: in a process of their own, or in a thread."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from penstock.client.admin import Admin
from penstock.client.child_broker import ChildBroker
from penstock.client.errors import ClientError
from penstock.client.free_ports import HeldPorts
from penstock.config import Settings
from penstock.model.endpoint import LOOPBACK, Endpoint

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class Broker(Protocol):
    """What a test gets: a running broker on a port and in a directory of its own."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients; stays the same over a restart."""
        ...

    @property
    def data_dir(self) -> Path: ...

    def create_topic(
        self, name: str, *, partitions: int = 1, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> str:
        """Create a topic, ready for use on return; returns its name."""
        ...

    def start(self) -> str:
        """Start again after `stop` or `kill`; returns the bootstrap address."""
        ...

    def stop(self) -> None:
        """Shut down cleanly; the data stays until the fixture ends."""
        ...

    def restart(self) -> None:
        """Stop, unless it is down already, and start with the same port and data."""
        ...

    def kill(self) -> None:
        """End at once, as `kill -9` would; only a broker in a process can do that."""
        ...


class _Broker(ABC):
    """What both kinds have in common."""

    bootstrap: str

    def __init__(self) -> None:
        self._ports = HeldPorts(LOOPBACK)

    @abstractmethod
    def _listen_at(self, endpoint: Endpoint) -> None:
        """Where to listen; without this, wherever the system likes."""

    @abstractmethod
    def start(self) -> str: ...

    @abstractmethod
    def stop(self) -> None: ...

    def create_topic(
        self, name: str, *, partitions: int = 1, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> str:
        Admin(self.bootstrap).topics.create(name, partitions=partitions, settings=settings)
        return name

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        # A broker that is down must find its port free when it comes back.
        (port,) = self._ports.take(1)
        self._listen_at(Endpoint(LOOPBACK, port))
        try:
            self.start()
        except BaseException:
            self._ports.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._ports.close()


class ProcessBroker(_Broker):
    """A broker in a child process: it shares nothing with the test, and it can be killed."""

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] = _NO_SETTINGS) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.bootstrap = ""
        self._settings = settings
        self._child = ChildBroker(data_dir, settings=settings)
        self._is_running = False

    def _listen_at(self, endpoint: Endpoint) -> None:
        self._child = ChildBroker(self.data_dir, kafka=str(endpoint), settings=self._settings)

    @property
    def log(self) -> str:
        """The last lines that the broker logged."""
        return self._child.log

    def start(self) -> str:
        self.bootstrap = self._child.start()
        self._is_running = True
        return self.bootstrap

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._child.stop()

    def kill(self) -> None:
        self._is_running = False
        self._child.kill()


class ThreadBroker(_Broker):
    """A broker on an event loop in a thread of the test process: starts fastest."""

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] = _NO_SETTINGS) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.bootstrap = ""
        self._settings = settings
        self._endpoint = Endpoint(LOOPBACK, 0)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ended: Future[None] = Future()

    def _listen_at(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def start(self) -> str:
        if self._thread is not None:
            raise ClientError("The broker is already running.")
        started: Future[Endpoint] = Future()
        self._ended = Future()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="penstock-broker", daemon=True
        )
        self._thread.start()
        try:
            # A restart keeps the port, so that clients find the broker again.
            self._endpoint = started.result(START_TIMEOUT_S)
        except BaseException:
            self._thread = None
            raise
        self.bootstrap = str(self._endpoint)
        return self.bootstrap

    def stop(self) -> None:
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT_S)
        self._thread = None
        # A fault while stopping must fail the test, not vanish with its thread.
        self._ended.result(0)

    def kill(self) -> None:
        raise ClientError("A broker in a thread can't be killed: use the mode 'process' for that.")

    def _serve(self, started: "Future[Endpoint]") -> None:
        try:
            asyncio.run(self._live(started))
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self, started: "Future[Endpoint]") -> None:
        # Imported here because a broker in a process does not need the server's code.
        from penstock.server import Node

        settings = Settings(
            data_dir=self.data_dir,
            kafka=self._endpoint,
            grpc=Endpoint(LOOPBACK, 0),
            http=Endpoint(LOOPBACK, 0),
            broker=self._settings,
        )
        node = Node(settings)
        endpoint = await node.start()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        started.set_result(endpoint)
        await self._stopping.wait()
        await node.stop()
