"""How far the nodes have come with the metadata, and who waits for them."""

import asyncio
from collections.abc import Iterable

from penstock.model.ids import Offset
from penstock.model.peers import NO_CLUSTER
from penstock.replication.peer_link import PeerLink


class MetadataProgress:
    def __init__(self) -> None:
        self.own = Offset(0)
        self._waiting: list[tuple[Offset, asyncio.Future[bool]]] = []

    async def wait(self, offset: Offset, timeout_s: float, links: Iterable[PeerLink]) -> bool:
        if self._slowest(links) >= offset:
            return True
        loop = asyncio.get_running_loop()
        reached: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((offset, reached))
        timer = loop.call_later(timeout_s, _settle, reached, False)
        try:
            return await reached
        finally:
            timer.cancel()
            self._waiting.remove((offset, reached))

    def review(self, links: Iterable[PeerLink]) -> None:
        """Somebody moved on, or is gone: nobody waits for a node that is not there."""
        if not self._waiting:
            return
        slowest = self._slowest(links)
        for offset, reached in self._waiting:
            if slowest >= offset:
                _settle(reached, True)

    def _slowest(self, links: Iterable[PeerLink]) -> Offset:
        """A node that belongs to no cluster yet has no copy to bring up to date."""
        others = [link.metadata_applied for link in links if link.hello.cluster_id != NO_CLUSTER]
        return min([self.own, *others])


def _settle(reached: "asyncio.Future[bool]", outcome: bool) -> None:
    if not reached.done():
        reached.set_result(outcome)
