"""The OpenAPI description, and a page of documentation that needs nothing from elsewhere.

Both follow from the table of routes and from the shapes of bodies.
"""

import html
from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.messages import ProblemDocument
from penstock.frontdoor.http.problems import PROBLEM_TYPE
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request
from penstock.frontdoor.http.routes import Parameter, Route

VERSION: Final = "3.1.0"
# What any route may answer.
COMMON_PROBLEMS: Final = (400, 403, 421, 500, 503)
_BINARY: Final = {"type": "string", "format": "binary"}
_REFERENCE: Final = "#/components/schemas/{name}"
# msgspec writes a raw JSON value as any value.
_PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{border-bottom:1px solid #8888;padding-bottom:.2rem;margin-top:2.5rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:#8881;padding:.8rem;overflow:auto;border-radius:.4rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .8rem .2rem 0;
vertical-align:top}.verb{display:inline-block;min-width:4.5rem;font-weight:700}
:root{color-scheme:light dark}
"""


def routes(described: Iterable[Route]) -> tuple[Route, ...]:
    """The routes that show this description."""
    table = tuple(described)

    @cache
    def document() -> bytes:
        return msgspec.json.encode(describe(table))

    @cache
    def page() -> bytes:
        return _page(table).encode()

    async def openapi(_: Context, __: Request) -> Answer:
        return Answer(200, document())

    async def docs(_: Context, __: Request) -> Answer:
        headers = {"content-security-policy": _PAGE_POLICY, "x-frame-options": "DENY"}
        return Answer(200, page(), "text/html; charset=utf-8", headers)

    return (
        Route(
            method="GET", path="/openapi.json", handler=openapi, summary="The OpenAPI description."
        ),
        Route(
            method="GET",
            path="/docs",
            handler=docs,
            summary="This API for people.",
            answer_types=("text/html",),
        ),
    )


def describe(table: Iterable[Route]) -> dict[str, Any]:
    table = tuple(table)
    shapes = _shapes(table)
    references, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    by_shape = {repr(shape): found for shape, found in zip(shapes, references, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        operation = _operation(route, by_shape)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": VERSION,
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "Topics over HTTP. Every node answers for the whole cluster. Errors "
            "are problem documents (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _shapes(table: Iterable[Route]) -> list[Any]:
    found: dict[str, Any] = {repr(ProblemDocument): ProblemDocument}
    for route in table:
        for shape in (*route.bodies.values(), *route.answers.values()):
            if shape is not None:
                found.setdefault(repr(shape), shape)
    return list(found.values())


def _operation(route: Route, shapes: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__
        if not route.path.endswith("/settings")
        else f"{route.handler.__name__}_{route.names[0]}",
        "summary": route.summary,
        "parameters": [*map(_path_parameter, route.names), *map(_parameter, route.parameters)],
        "responses": _responses(route, shapes),
    }
    if route.help:
        operation["description"] = route.help
    if route.bodies:
        content = {
            kind: {"schema": _BINARY if shape is None else shapes[repr(shape)]}
            for kind, shape in route.bodies.items()
            if "/" in kind
        }
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.help,
        "schema": dict(parameter.schema),
    }


def _responses(route: Route, shapes: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, shape in route.answers.items():
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if status != 204:
            answer["content"] = {
                kind: {"schema": shapes[repr(shape)]} if kind == JSON_TYPE and shape else {}
                for kind in route.answer_types
            }
        responses[str(status)] = answer
    problem = {"content": {PROBLEM_TYPE: {"schema": shapes[repr(ProblemDocument)]}}}
    for status in sorted({*COMMON_PROBLEMS, *route.problems}):
        described = {"description": HTTPStatus(status).phrase, **problem}
        known = responses.setdefault(str(status), described)
        known.setdefault("content", {}).update(problem["content"])
    return responses


# The page


def _page(table: Iterable[Route]) -> str:
    sections = "".join(map(_section, table))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>Penstock over HTTP</title><style>{_STYLE}</style>"
        "<h1>Penstock over HTTP</h1><p>Every node answers for the whole cluster. Errors are "
        "problem documents (RFC 9457). A description for programs is at "
        "<a href='/openapi.json'>/openapi.json</a>.</p>"
        "<pre>curl -H 'Content-Type: application/json' "
        "-d '{&quot;records&quot;: [{&quot;value&quot;: {&quot;hello&quot;: 1}}]}' \\\n"
        "    localhost:9094/v1/topics/greetings/records\n"
        "curl localhost:9094/v1/topics/greetings/records</pre>"
        f"{sections}</html>"
    )


def _section(route: Route) -> str:
    parts = [
        f"<h2><span class=verb>{route.method}</span> <code>{html.escape(route.path)}</code></h2>",
        f"<p>{html.escape(route.summary)} {html.escape(route.help)}</p>",
    ]
    if route.parameters:
        rows = "".join(
            f"<tr><td><code>{html.escape(each.name)}</code><td>{each.place}"
            f"<td>{html.escape(each.help)}"
            for each in route.parameters
        )
        parts.append(f"<table><tr><th>name<th>in<th>what it says{rows}</table>")
    if route.bodies:
        kinds = ", ".join(f"<code>{each}</code>" for each in route.bodies if "/" in each)
        parts.append(f"<p>Bodies: {kinds}</p>")
    for shape in route.bodies.values():
        text = getattr(shape, "__doc__", None)
        if text and isinstance(shape, type):
            fields = ", ".join(
                f"<code>{each.name}</code>" for each in msgspec.structs.fields(shape)
            )
            words = html.escape(" ".join(text.split()))
            parts.append(f"<p><b>{shape.__name__}</b> ({fields}): {words}</p>")
    statuses = ", ".join(map(str, sorted({*route.answers, *route.problems})))
    parts.append(f"<p>Answers: {statuses}</p>")
    return "".join(parts)
