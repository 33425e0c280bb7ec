"""Producer, Consumer and Admin for Python users: small, typed, on top of confluent-kafka.

Names are loaded when first used, because librdkafka takes tens of milliseconds to import and
anyone who only wants to catch `ClientError` should not pay for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin import Admin as Admin
    from penstock.client.child_broker import ChildBroker as ChildBroker
    from penstock.client.consumer import ConsumedRecord as ConsumedRecord
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.errors import ClientError as ClientError
    from penstock.client.producer import Producer as Producer

_HOMES = {
    "Admin": "penstock.client.admin",
    "ChildBroker": "penstock.client.child_broker",
    "ClientError": "penstock.client.errors",
    "ConsumedRecord": "penstock.client.consumer",
    "Consumer": "penstock.client.consumer",
    "Producer": "penstock.client.producer",
}

__all__ = ["Admin", "ChildBroker", "ClientError", "ConsumedRecord", "Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
