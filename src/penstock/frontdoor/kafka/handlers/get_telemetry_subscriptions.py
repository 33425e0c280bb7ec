"""GetTelemetrySubscriptions, version 0: which metrics a client should push, and how often.

A client without an id gets one. All subscriptions that match it count together: the metrics of all
of them, in the shortest of their intervals, and nothing every five minutes where there is none. A
client that asks before its next push is due gets THROTTLING_QUOTA_EXCEEDED, unless
the subscriptions changed, or the broker has just refused its subscription or compression.

Kafka serves this API only with a receiver of metrics plugged in; here the broker keeps them itself.
The rules were read from `ClientMetricsManager` of Kafka 4.3.1. The tests ask a Kafka with a
receiver the same, but for what takes time: intervals that pass, and clients that fall silent.

Deviations: the metrics are listed in the order of their names, where Kafka's have none. ApiVersions
lists this API only while there is a subscription, so a client that connected before the first one
was made takes part once it has connected again.
"""

from penstock.broker.client_metrics import MetricsClient
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.telemetry import ACCEPTED_CODECS
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    connection = call.connection
    client = MetricsClient(
        request.client_instance_id,
        call.client_id,
        *connection.software,
        connection.peer_host,
        connection.peer_port,
    )
    instance = connection.telemetry.subscribe(client, connection.id, call.now)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.client.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=call.services.client_metrics.push_bytes_max,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


API = Api(
    key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions=(0, 0),
    request=GetTelemetrySubscriptionsRequest,
    response=GetTelemetrySubscriptionsResponse,
    handle=handle,
)
