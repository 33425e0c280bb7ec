"""Producer, Consumer, Queue and Admin for Python users: small and typed. Queues have a client of
their own (`penstock.client.wire`), all others stand on confluent-kafka.

Names are loaded when first used, because librdkafka takes tens of milliseconds to import and
anyone who only wants to catch `ClientError` should not pay for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin import Admin as Admin
    from penstock.client.asynchronous import AsyncAdmin as AsyncAdmin
    from penstock.client.asynchronous import AsyncConsumer as AsyncConsumer
    from penstock.client.asynchronous import AsyncProducer as AsyncProducer
    from penstock.client.child_broker import ChildBroker as ChildBroker
    from penstock.client.consumer import ConsumedRecord as ConsumedRecord
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.errors import ClientError as ClientError
    from penstock.client.producer import Delivery as Delivery
    from penstock.client.producer import Producer as Producer
    from penstock.client.queue import AsyncQueue as AsyncQueue
    from penstock.client.queue import Message as Message
    from penstock.client.queue import Queue as Queue
    from penstock.client.queue import Reject as Reject

_HOMES = {
    "Admin": "penstock.client.admin",
    "AsyncAdmin": "penstock.client.asynchronous",
    "AsyncConsumer": "penstock.client.asynchronous",
    "AsyncProducer": "penstock.client.asynchronous",
    "AsyncQueue": "penstock.client.queue",
    "ChildBroker": "penstock.client.child_broker",
    "ClientError": "penstock.client.errors",
    "ConsumedRecord": "penstock.client.consumer",
    "Consumer": "penstock.client.consumer",
    "Delivery": "penstock.client.producer",
    "Message": "penstock.client.queue",
    "Producer": "penstock.client.producer",
    "Queue": "penstock.client.queue",
    "Reject": "penstock.client.queue",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "ChildBroker",
    "ClientError",
    "ConsumedRecord",
    "Consumer",
    "Delivery",
    "Message",
    "Producer",
    "Queue",
    "Reject",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
