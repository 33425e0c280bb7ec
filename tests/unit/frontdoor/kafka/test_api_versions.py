"""ApiVersions lists exactly what is served, and answers whatever version it is asked in."""

import asyncio

import pytest

from penstock.frontdoor.kafka.handlers import get_telemetry_subscriptions, push_telemetry
from penstock.frontdoor.kafka.handlers.api_versions import FEATURES
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.headers import encode_request_header
from penstock.protocol.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

from .kit import beat, describe_api, frame_of, heartbeat_api, open_house, request_frame

LISTED = [
    ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=4),
    ApiVersion(api_key=ApiKey.DESCRIBE_GROUPS, min_version=0, max_version=5),
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4),
]


def ask(frame: bytes, answer_version: int) -> tuple[int, ApiVersionsResponse]:
    """The answer's correlation id and body; its header is version 0 in every version."""

    async def scenario() -> bytes:
        async with open_house(describe_api(beat), heartbeat_api(beat)) as house:
            client = await house.connect()
            client.send(frame)
            return await client.read_frame()

    reply = asyncio.run(scenario())
    return int.from_bytes(reply[:4], "big"), decode(ApiVersionsResponse, answer_version, reply, 4)


def request(version: int, name: str = "librdkafka", software_version: str = "2.16.1") -> bytes:
    message = ApiVersionsRequest(
        client_software_name=name, client_software_version=software_version
    )
    return request_frame(message, ApiKey.API_VERSIONS, version, 7)


@pytest.mark.parametrize("version", range(5))
def test_lists_what_is_served(version: int) -> None:
    correlation_id, response = ask(request(version), version)
    assert correlation_id == 7
    assert (response.error_code, response.api_keys) == (0, LISTED)
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    highest = {name: feature.highest for name, feature in FEATURES.items()}
    assert finalized == (highest if version >= 3 else {})
    supported = {
        each.name: (each.min_version, each.max_version) for each in response.supported_features
    }
    # What starts at level 0 would be an error for older clients.
    known = {3: {"metadata.version": (30, 30)}, 4: FEATURES}
    assert supported == known.get(version, {})
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


@pytest.mark.parametrize("version", range(5))
def test_client_metrics_are_listed_while_there_is_a_subscription(version: int) -> None:
    async def scenario() -> list[set[int]]:
        async with open_house(get_telemetry_subscriptions.API, push_telemetry.API) as house:
            client = await house.connect()
            listed = []
            for subscriptions in ([], ["slow"], []):
                house.subscriptions = subscriptions
                client.send(request(version))
                answer = decode(ApiVersionsResponse, version, await client.read_frame(), 4)
                listed.append({each.api_key for each in answer.api_keys})
            return listed

    others = {ApiKey.API_VERSIONS}
    metrics = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert asyncio.run(scenario()) == [others, others | metrics, others]


@pytest.mark.parametrize("version", [5, 6, 1000, -1])
def test_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    """kafka-python and newer clients start too high and come down by this answer."""
    header = ApiKey.API_VERSIONS.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    frame = frame_of(header + (99).to_bytes(4, "big") + b"what follows is anybody's guess")
    correlation_id, response = ask(frame, 0)
    assert correlation_id == 99
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.api_keys == LISTED


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"),
    [("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a", "1."), ("a", "1\n"), ("ä", "1")],
)
def test_software_names_are_checked(version: int, name: str, software_version: str) -> None:
    _, response = ask(request(version, name, software_version), version)
    assert response == ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "kafka.python", "A1"])
def test_usual_software_names_pass(name: str) -> None:
    _, response = ask(request(3, name, "1.2.3-rc.1"), 3)
    assert response.error_code == ErrorCode.NONE


def test_old_versions_name_no_software() -> None:
    frame = frame_of(encode_request_header(ApiKey.API_VERSIONS, 2, 1, None))
    _, response = ask(frame, 2)
    assert response.error_code == ErrorCode.NONE
