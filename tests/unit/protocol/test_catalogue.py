"""Proves that the catalogue is whole and that its declarations agree with each other."""

import subprocess
import sys

import pytest
from kio.schema.index import api_key_map

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.schema import schema_of


def test_every_api_key_is_in_the_catalogue() -> None:
    assert set(EXCHANGES) == set(ApiKey)


def test_api_keys_equal_kio() -> None:
    assert {int(key): key.name.lower() for key in ApiKey}.items() <= dict(api_key_map).items()


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.name)
def test_request_and_response_belong_together(api_key: ApiKey) -> None:
    request, response = (schema_of(side) for side in EXCHANGES[api_key])
    assert request.api_key is response.api_key is api_key
    assert request.versions == response.versions
    assert request.flexible_from == response.flexible_from
    assert request.name.removesuffix("Request") == response.name.removesuffix("Response")


def test_importing_all_messages_compiles_nothing() -> None:
    """A node must be ready in a fraction of a second, so codecs and constructors wait for use."""
    program = """
import penstock.protocol.kafka.headers
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.schema import Struct, schema_of
for exchange in EXCHANGES.values():
    for side in exchange:
        assert not schema_of(side).decoders and not schema_of(side).encoders
        assert side.__init__ is Struct.__init__
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
