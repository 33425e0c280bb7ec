"""For other people's tests: a real broker per test or per session, as a pytest plug-in.

pytest loads this package in every project that has Penstock installed, so names are imported
only when they are used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker as Broker
    from penstock.testing.brokers import ProcessBroker as ProcessBroker
    from penstock.testing.brokers import ThreadBroker as ThreadBroker

__all__ = ["Broker", "ProcessBroker", "ThreadBroker"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("penstock.testing.brokers"), name)
