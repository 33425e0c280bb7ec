"""Which brokers belong to the cluster, as an operator changes it."""

from penstock.cluster.coordinator import Cluster
from penstock.model.ids import BrokerId


class Membership:
    def __init__(self, *, cluster: Cluster) -> None:
        self._cluster = cluster

    async def remove_broker(self, node: int) -> None:
        """The broker belongs to the cluster no more; refused while it holds anything."""
        await self._cluster.remove_broker(BrokerId(node))
