"""ApiVersions, versions 0 to 4: lists the APIs that this broker serves.

- The two APIs of client metrics (KIP-714) are listed only while there is a subscription. Kafka
  lists them only with a receiver plugged in. A client that sees them asks for an id at once, and
  librdkafka then logs a line at its default level, which nobody without a subscription should see.
- From version 3 on the client must name its software; a name or version that Kafka would not take
  is answered with INVALID_REQUEST and no list.
- A version that we don't know is answered in version 0 with UNSUPPORTED_VERSION and the list, so
  that the client can ask again; the connection does that itself, since the body can't be decoded.
- Of Kafka's features `metadata.version` is there, at the level of Kafka 4.3, `group.version`, at
  the level that has the new consumer protocol (KIP-848), and `share.version`, at the level that has
  share groups (KIP-932); they can't be changed. A feature that is not listed, such as
  `transaction.version`, is at level 0 for clients.
- A feature whose lowest level is 0 is listed as supported from version 4 on only, as Kafka does it:
  older clients can't read such a level.
- The response header never has tagged fields, whatever the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

VERSIONS: Final = (0, 4)
_NAMES_SOFTWARE_FROM: Final = 3
_LEVEL_ZERO_FROM: Final = 4


class Feature(NamedTuple):
    """What this broker supports of a feature; the highest level is the one in force."""

    lowest: int
    highest: int


# Kafka 4.3 calls this level of its metadata 4.3-IV0.
FEATURES: Final = {
    "group.version": Feature(0, 1),
    "metadata.version": Feature(30, 30),
    "share.version": Feature(0, 1),
}
# They change only with the code, so there was never another set.
_FEATURES_EPOCH: Final = 0
_CLIENT_METRICS: Final = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class _Listing:
    """One list of APIs. It changes only with the code, so each version of it is encoded once."""

    def __init__(self, versions: dict[ApiKey, tuple[int, int]]) -> None:
        self.answer = ApiVersionsResponse(
            api_keys=_listed(versions),
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=highest, max_version_level=highest)
                for name, (_, highest) in FEATURES.items()
            ],
        )
        self._bodies: dict[int, bytes] = {}

    def encoded(self, version: int) -> bytes:
        body = self._bodies.get(version)
        if body is None:
            answer = ApiVersionsResponse(
                api_keys=self.answer.api_keys,
                supported_features=_supported(version),
                finalized_features_epoch=_FEATURES_EPOCH,
                finalized_features=self.answer.finalized_features,
            )
            body = self._bodies[version] = encode(answer, version)
        return body


class _ApiVersions:
    def __init__(self, versions: dict[ApiKey, tuple[int, int]]) -> None:
        self._all = _Listing(versions)
        self._without_metrics = _Listing(
            {key: each for key, each in versions.items() if key not in _CLIENT_METRICS}
        )

    def handle(self, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if call.version >= _NAMES_SOFTWARE_FROM and not _names_software(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if call.version >= _NAMES_SOFTWARE_FROM:
            names = request.client_software_name, request.client_software_version
            call.connection.software = names
        asks_clients = call.services.client_metrics.subscriptions()
        return (self._all if asks_clients else self._without_metrics).answer

    def encode(self, call: Call, request: ApiVersionsRequest, answer: ApiVersionsResponse) -> bytes:
        for listing in (self._without_metrics, self._all):
            if answer is listing.answer:
                return listing.encoded(call.version)
        return encode(answer, call.version)


def _supported(version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in FEATURES.items()
        if lowest > 0 or version >= _LEVEL_ZERO_FROM
    ]


def make_api(others: Iterable[Api]) -> Api:
    """ApiVersions itself, which lists `others` and itself."""
    versions = {api.key: api.versions for api in others} | {ApiKey.API_VERSIONS: VERSIONS}
    served = _ApiVersions(versions)
    return Api(
        key=ApiKey.API_VERSIONS,
        versions=VERSIONS,
        request=ApiVersionsRequest,
        response=ApiVersionsResponse,
        handle=served.handle,
        encode=served.encode,
    )


def unsupported_version(apis: Iterable[Api]) -> ApiVersionsResponse:
    """The answer to an ApiVersions request in a version that we don't know."""
    listed = _listed({api.key: api.versions for api in apis})
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=listed)


def _listed(versions: dict[ApiKey, tuple[int, int]]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, (lowest, highest) in sorted(versions.items())
    ]


def _names_software(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)
