"""Asks the HTTP door without a socket: the application over a broker in memory."""

import asyncio
import json
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from penstock.frontdoor.http.app import App
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.metrics import Metrics
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.locks import Locks
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.queueing import Queueing
from penstock.frontdoor.remote.reading import Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.frontdoor.remote.writing import Writer
from tests.unit.clocks import START_MS
from tests.unit.frontdoor.remote.fake_broker import FakeBroker

JSON = {"content-type": "application/json"}


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One process of doors, and requests to it."""

    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self.fake = FakeBroker()
        broker = Broker(self.fake)
        topics = Topics(broker, lambda: 0.0)
        self.context = Context(
            broker=broker,
            topics=topics,
            writer=Writer(topics, Publisher(broker)),
            reader=Reader(broker),
            locks=Locks(broker, time.monotonic),
            metrics=Metrics(),
            queueing=Queueing(broker),
            now_ms=lambda: START_MS,
        )
        self.app = App(self.context, hosts)

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | str | dict[str, Any] = b"",
        headers: dict[str, str] | None = None,
    ) -> Response:
        opened = self.open(method, target, body, headers)
        await opened.task
        return opened.response

    async def post(self, body: Any, topic: str = "t", **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("POST", f"/v1/topics/{topic}/records", body, {**JSON, **named})

    def open(
        self,
        method: str,
        target: str,
        body: bytes | str | dict[str, Any] = b"",
        headers: dict[str, str] | None = None,
    ) -> "Opened":
        data = json.dumps(body) if isinstance(body, dict) else body
        data = data.encode() if isinstance(data, str) else data
        path, _, query = target.partition("?")
        given = {"host": "localhost:9094", **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        return Opened(self.app, scope, data)


class Opened:
    """A request that may take long, and what has come of its answer so far."""

    def __init__(self, app: App, scope: dict[str, Any], body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self.response = Response(0, {}, b"")
        self.came = asyncio.Event()
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.response.status = message["status"]
            self.response.headers = {
                name.decode(): value.decode() for name, value in message["headers"]
            }
        else:
            self.response.body += message.get("body", b"")
            self.came.set()

    async def until(self, text: bytes) -> None:
        """Returns when this has come."""
        while text not in self.response.body:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 30)

    async def leave(self) -> None:
        self._gone.set()
        await asyncio.wait_for(self.task, 30)
