"""PushTelemetry, version 0: a client's own metrics, of which the broker keeps the last.

In this order: a push after the client's last one is INVALID_REQUEST, one that comes too early
THROTTLING_QUOTA_EXCEEDED (the last one may), one for other metrics than the client is asked for now
UNKNOWN_SUBSCRIPTION_ID, one in a compression that does not exist UNSUPPORTED_COMPRESSION_TYPE, and
one of more than `telemetry.max.bytes` TELEMETRY_TOO_LARGE. One that can't be unpacked within that
bound is INVALID_RECORD. One without values is fine.

Where the rules come from is said at GetTelemetrySubscriptions.

Deviations: none known.
"""

from penstock.broker.client_metrics import MetricsClient
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.telemetry import Push
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)


def handle(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    connection = call.connection
    client = MetricsClient(
        request.client_instance_id,
        call.client_id,
        *connection.software,
        connection.peer_host,
        connection.peer_port,
    )
    push = Push(
        subscription_id=request.subscription_id,
        is_terminating=request.terminating,
        codec=request.compression_type,
        metrics=request.metrics,
    )
    connection.telemetry.push(client, connection.id, push, call.now)
    return PushTelemetryResponse()


API = Api(
    key=ApiKey.PUSH_TELEMETRY,
    versions=(0, 0),
    request=PushTelemetryRequest,
    response=PushTelemetryResponse,
    handle=handle,
)
