"""Takes a request from the server through guards and routes to its handler, and answers.

A plain ASGI application: it costs a few microseconds, where a framework takes a hundred.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import aclosing
from typing import Final

from penstock.frontdoor.http import (
    administration,
    consumers,
    events,
    locks,
    openapi,
    operations,
    publish,
    queue_events,
    queues,
    read,
    registry,
)
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.guards import Guards
from penstock.frontdoor.http.metrics import HTTP
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import (
    Answer,
    Cut,
    Gone,
    Receive,
    Request,
    Scope,
    Send,
    problem_answer,
)
from penstock.frontdoor.http.routes import Route, Router
from penstock.model.errors import Refused

API_ROUTES: Final = (
    *publish.ROUTES,
    *read.ROUTES,
    *events.ROUTES,
    *queues.ROUTES,
    *queue_events.ROUTES,
    *administration.ROUTES,
    *consumers.ROUTES,
    *locks.ROUTES,
    *operations.ROUTES,
)
# Confluent describes the registry's API; this door's own description leaves it out.
ROUTES: Final = (*API_ROUTES, *registry.ROUTES, *openapi.routes(API_ROUTES))
# Of every answer: nobody may frame it, guess its type, or keep it.
COMMON_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
NO_CONTENT: Final = 204
FIRST_ERROR: Final = 400
# A client may ask for any path with any method: all that there is no route for count as one.
NO_ROUTE: Final = "(no route)"

logger = logging.getLogger(__name__)


class App:
    def __init__(
        self,
        context: Context,
        hosts: Collection[str],
        *,
        now_s: Callable[[], float] = time.monotonic,
        routes: Iterable[Route] = ROUTES,
    ) -> None:
        self._context = context
        self._guards = Guards(hosts)
        self._router = Router(routes)
        self._now_s = now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server passes on nothing else"
        started = self._now_s()
        request = Request(scope, receive, self._context.hold)
        route_path, answer = await self._answered(request, scope["raw_path"])
        try:
            if answer is not None:
                await self._send(answer, send, is_head=request.method == "HEAD")
        except Cut as cut:
            # The server closes the connection of an answer that is not whole.
            logger.warning("%s %s was cut off: %s", request.method, route_path, cut)
        finally:
            self._context.release(request.held_bytes)
            if answer is not None:
                error = str(answer.status) if answer.status >= FIRST_ERROR else None
                api = f"{request.method} {route_path}" if route_path else NO_ROUTE
                took = self._now_s() - started
                self._context.metrics.counts.answered(HTTP, api, took, error)

    async def _answered(self, request: Request, raw_path: bytes) -> tuple[str, Answer | None]:
        """The path of the route and the answer; None if there is nobody to be answered."""
        path = ""
        show: Callable[[Problem], Answer] = problem_answer
        try:
            self._guards.check_source(request)
            route, request.parameters, query_names = self._router.find(request.method, raw_path)
            path, show = route.path, route.show_problem
            self._guards.check_site(request, route)
            if query_names is not None:
                request.check_query(query_names)
            self._guards.check_body_type(request, route)
            return path, await route.handler(self._context, request)
        except Problem as problem:
            return path, show(problem)
        except Refused as refused:
            return path, show(Problem.of(refused))
        except Gone:
            return path, None
        except Exception:
            logger.exception("%s %s failed", request.method, path)
            detail = "The server failed to handle this; its log says why."
            return path, show(Problem(500, detail, reason="unknown_server_error"))

    async def _send(self, answer: Answer, send: Send, *, is_head: bool) -> None:
        headers = list(COMMON_HEADERS)
        headers += [
            (name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()
        ]
        if answer.status != NO_CONTENT:
            headers.append((b"content-type", answer.content_type.encode()))
            if answer.pieces is None:
                headers.append((b"content-length", b"%d" % len(answer.body)))
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if answer.pieces is None:
            await send(start)
            await send({"type": "http.response.body", "body": answer.body})
            return
        async with aclosing(answer.pieces) as pieces:
            await send(start)
            # Of a stream that has no end, a head is all that can be had without waiting.
            async for piece in pieces if not is_head else _nothing():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _nothing() -> AsyncIterator[bytes]:
    none: tuple[bytes, ...] = ()
    for piece in none:
        yield piece
