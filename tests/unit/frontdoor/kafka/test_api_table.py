"""The table of APIs: nothing is forgotten, and each API can say in every version that it failed."""

import pkgutil
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.frontdoor.kafka import handlers
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.api_table import APIS
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.schema import schema_of
from tests.unit.broker.lone_leaderships import MadeUpCluster, broker
from tests.wire.samples import sample


def test_every_handler_is_in_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    assert {key.name.lower() for key in APIS} == modules


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_an_api_serves_versions_that_its_messages_have(api: Api) -> None:
    assert (api.request, api.response) == EXCHANGES[api.key]
    for message in (api.request, api.response):
        first, last = schema_of(message).versions
        assert first <= api.versions[0] <= api.versions[1] <= last


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_an_api_can_say_that_all_of_a_request_failed(api: Api) -> None:
    """Also for requests with odd content, since a failure may come from just that."""
    rng = random.Random(api.key.name)
    for version in range(api.versions[0], api.versions[1] + 1):
        for request in (api.request(), sample(api.request, version, rng)):
            answer = error_answer(api, version, request)
            if answer is not None:
                encode(answer, version)


def error_answer(api: Api, version: int, request: Any) -> Any:
    cluster = MadeUpCluster(broker(1))
    services = cast("Any", SimpleNamespace(leaderships=cluster.leaderships))
    call = Call(services, api.key, version, None, cast("Any", SimpleNamespace()), 0.0)
    return api.refusal(call, request, ErrorCode.UNKNOWN_SERVER_ERROR)
