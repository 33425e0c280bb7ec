"""For other people's tests: a real broker or cluster, per test or per session, for pytest.

pytest loads this package in every project that has Penstock installed, so names are imported
only when they are used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker as Broker
    from penstock.testing.brokers import ProcessBroker as ProcessBroker
    from penstock.testing.brokers import ThreadBroker as ThreadBroker
    from penstock.testing.clusters import ClusterNode as ClusterNode
    from penstock.testing.clusters import ProcessCluster as ProcessCluster

_HOMES = {
    "Broker": "penstock.testing.brokers",
    "ClusterNode": "penstock.testing.clusters",
    "ProcessBroker": "penstock.testing.brokers",
    "ProcessCluster": "penstock.testing.clusters",
    "ThreadBroker": "penstock.testing.brokers",
}

__all__ = ["Broker", "ClusterNode", "ProcessBroker", "ProcessCluster", "ThreadBroker"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
