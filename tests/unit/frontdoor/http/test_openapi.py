"""Proves that every route is described, and that the description holds together."""

from typing import Any

from penstock.frontdoor.http.app import API_ROUTES, ROUTES
from penstock.frontdoor.http.problems import status_of
from penstock.model.errors import Reason
from tests.unit.frontdoor.http.client import Client


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


async def test_the_description_has_every_route_and_no_loose_end() -> None:
    document = (await Client().ask("GET", "/openapi.json")).json()
    for route in API_ROUTES:
        assert route.method.lower() in document["paths"][route.path]
    schemas = document["components"]["schemas"]
    assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= set(
        schemas
    )
    operations = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(operations)) == len(operations)
    assert "value" in schemas["NewRecord"]["properties"]


async def test_the_page_needs_nothing_from_elsewhere() -> None:
    answer = await Client().ask("GET", "/docs")
    page = answer.body.decode()
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "http://" not in page
    assert "https://" not in page
    for route in ROUTES[: len(API_ROUTES)]:
        assert route.path in page


def test_every_reason_has_a_status() -> None:
    statuses = {reason: status_of(reason) for reason in Reason}
    assert statuses[Reason.UNKNOWN_TOPIC_OR_PARTITION] == 404
    assert statuses[Reason.INVALID_CONFIG] == 400
    assert set(statuses.values()) <= {400, 403, 404, 409, 413, 416, 429, 500, 501, 503, 504}
