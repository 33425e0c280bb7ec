"""Penstock: one replicated log with three contracts behind three front doors.

What Python users need most is here: `penstock.Producer`, `penstock.read_arrow` and so on. Names are
loaded when they are first used, because each stands on libraries that take long to import.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import Admin as Admin
    from penstock.client import AsyncAdmin as AsyncAdmin
    from penstock.client import AsyncConsumer as AsyncConsumer
    from penstock.client import AsyncProducer as AsyncProducer
    from penstock.client import AsyncQueue as AsyncQueue
    from penstock.client import ClientError as ClientError
    from penstock.client import Consumer as Consumer
    from penstock.client import Producer as Producer
    from penstock.client import Queue as Queue
    from penstock.client import Reject as Reject
    from penstock.client.lock import LockHeld as LockHeld
    from penstock.client.lock import LockLost as LockLost
    from penstock.client.lock import alock as alock
    from penstock.client.lock import lock as lock
    from penstock.client.sql import sql as sql
    from penstock.client.tables import read_arrow as read_arrow
    from penstock.client.tables import read_pandas as read_pandas
    from penstock.client.tables import read_polars as read_polars

__version__ = "0.1.0"

_HOMES = {
    "Admin": "penstock.client.admin",
    "AsyncAdmin": "penstock.client.asynchronous",
    "AsyncConsumer": "penstock.client.asynchronous",
    "AsyncProducer": "penstock.client.asynchronous",
    "AsyncQueue": "penstock.client.queue",
    "ClientError": "penstock.client.errors",
    "Consumer": "penstock.client.consumer",
    "LockHeld": "penstock.client.lock",
    "LockLost": "penstock.client.lock",
    "Producer": "penstock.client.producer",
    "Queue": "penstock.client.queue",
    "Reject": "penstock.client.queue",
    "alock": "penstock.client.lock",
    "lock": "penstock.client.lock",
    "read_arrow": "penstock.client.tables",
    "read_pandas": "penstock.client.tables",
    "read_polars": "penstock.client.tables",
    "sql": "penstock.client.sql",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "ClientError",
    "Consumer",
    "LockHeld",
    "LockLost",
    "Producer",
    "Queue",
    "Reject",
    "__version__",
    "alock",
    "lock",
    "read_arrow",
    "read_pandas",
    "read_polars",
    "sql",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
