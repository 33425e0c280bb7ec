"""grpc.health.v1: the node is serving when it is ready, and so are all of its services."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from penstock.broker.doors.calls import DescribeNode
from penstock.frontdoor.grpc import limits, statuses
from penstock.frontdoor.grpc.context import Context
from penstock.model.errors import Refused

SERVICE_NAME = health.SERVICE_NAME
_Reply = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    def __init__(self, context: Context, services: Collection[str]) -> None:
        self._context = context
        # "" stands for the node as a whole.
        self._services = {"", *services}

    async def Check(self, request: Any, call: Any) -> Any:  # noqa: N802
        if request.service not in self._services:
            message = f"There is no service {request.service!r}."
            await statuses.Failure(grpc.StatusCode.NOT_FOUND, message, "UNKNOWN_SERVICE").end(call)
        return _Reply(status=await self._status())

    async def Watch(self, request: Any, call: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Says how it is, and again when that changes."""
        try:
            with self._context.stream():
                shown = None
                while True:
                    status = _Reply.SERVICE_UNKNOWN
                    if request.service in self._services:
                        status = await self._status()
                    if status != shown:
                        yield _Reply(status=status)
                        shown = status
                    if self._context.stopping.done():
                        return
                    with self._context.stopping.watched() as stopping:
                        await asyncio.wait([stopping], timeout=limits.HEALTH_CHECK_S)
        except statuses.Failure as failure:
            await failure.end(call)

    async def _status(self) -> Any:
        if self._context.stopping.done():
            return _Reply.NOT_SERVING
        try:
            node = await self._context.parts.broker.ask(DescribeNode())
        except Refused:
            return _Reply.NOT_SERVING
        return _Reply.NOT_SERVING if node.unready else _Reply.SERVING
