"""What answers each method of each service, by their names in penstock_v1.proto."""

from collections.abc import Mapping
from typing import Final

from penstock.frontdoor.grpc import (
    locks,
    plain,
    publish,
    queue_subscription,
    queues,
    read,
    subscribe,
)
from penstock.frontdoor.grpc.methods import Methods

STREAMS: Final[Methods] = {
    "Publish": publish.publish,
    "PublishStream": publish.publish_stream,
    "Fetch": read.fetch,
    "Seek": read.seek,
    "Subscribe": subscribe.subscribe,
}

QUEUES: Final[Methods] = {**queues.METHODS, "Subscribe": queue_subscription.subscribe}

SERVICES: Final[Mapping[str, Methods]] = {
    "Streams": STREAMS,
    "Queues": QUEUES,
    "Groups": plain.GROUPS,
    "Locks": locks.METHODS,
    "Administration": plain.ADMINISTRATION,
}
