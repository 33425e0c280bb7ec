"""How a node comes to belong to a cluster, once in the life of its data directory.

A stand-alone node founds a cluster of one. Nodes that list each other found one together, but only
when all of them are there and none belongs to a cluster yet: then the lowest number fixes the
cluster's id and its founders, which are the first voters of the metadata, and the others learn
both by asking. A node that meets an existing cluster, as a new node or as a listed one with
an empty disk, takes over its id and founders too; it is not among them, so it has no vote until
the cluster gives it one. Later starts ask nobody: what is stored wins over any flag.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.model.endpoint import Endpoint
from penstock.model.errors import Refused, StartRefused
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId
from penstock.replication.exchange import Exchange
from penstock.replication.peer_network import PeerNetwork

logger = logging.getLogger(__name__)

MEET = "cluster.meet"
MEET_INTERVAL_S = 0.1
MEET_TIMEOUT_S = 2.0
# How often a node that waits for others says so.
WAITING_LOG_S = 5.0


class Identity(Protocol):
    """What a data directory remembers of its cluster; `set_cluster` blocks until it is durable."""

    @property
    def directory_id(self) -> DirectoryId: ...

    @property
    def cluster_id(self) -> str | None: ...

    @property
    def founders(self) -> Sequence[ReplicaId]: ...

    def set_cluster(self, cluster_id: str, founders: Sequence[ReplicaId]) -> None: ...


class Introduction(NamedTuple):
    """What a node says about its cluster when another one asks."""

    cluster_id: str
    founders: tuple[ReplicaId, ...]
    # The numbers on its own list, if it was given one.
    listed: frozenset[BrokerId]

    def encode(self) -> bytes:
        return json.dumps(
            {
                "cluster_id": self.cluster_id,
                "founders": self.founders,
                "listed": sorted(self.listed),
            }
        ).encode()


def decode_introduction(data: bytes) -> Introduction:
    """Raises ValueError for anything that is not one."""
    try:
        content = json.loads(data)
        return Introduction(
            str(content["cluster_id"]),
            tuple(
                ReplicaId(BrokerId(int(node)), DirectoryId(str(directory)))
                for node, directory in content["founders"]
            ),
            frozenset(BrokerId(int(node)) for node in content["listed"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an introduction: {error}") from None


class Formation:
    def __init__(
        self,
        *,
        node: BrokerId,
        identity: Identity,
        exchange: Exchange,
        network: PeerNetwork,
        listed: Mapping[BrokerId, Endpoint],
        join: Endpoint | None,
        new_cluster_id: Callable[[], str],
    ) -> None:
        self._node = node
        self._identity = identity
        self._exchange = exchange
        self._network = network
        self._listed = listed
        self._join = join
        self._new_cluster_id = new_cluster_id
        exchange.serve(MEET, self._introduce)

    async def run(self) -> None:
        """Returns once the node belongs to a cluster; raises StartRefused if it never can."""
        if self._identity.cluster_id is None:
            if self._listed or self._join is not None:
                await self._meet_others()
            else:
                self._found([self._own])
        assert self._identity.cluster_id is not None
        self._exchange.set_cluster(self._identity.cluster_id)

    @property
    def _own(self) -> ReplicaId:
        return ReplicaId(self._node, self._identity.directory_id)

    async def _introduce(self, _: BrokerId, __: bytes) -> bytes:
        return Introduction(
            self._identity.cluster_id or "",
            tuple(self._identity.founders),
            frozenset(self._listed),
        ).encode()

    async def _meet_others(self) -> None:
        others = [endpoint for node, endpoint in self._listed.items() if node != self._node]
        self._network.meet([self._join] if self._join is not None else others)
        waited_s = 0.0
        while self._identity.cluster_id is None:
            self._settle(await self._ask_all())
            if self._identity.cluster_id is not None:
                return
            if waited_s % WAITING_LOG_S < MEET_INTERVAL_S:
                self._say_what_is_missing()
            await asyncio.sleep(MEET_INTERVAL_S)
            waited_s += MEET_INTERVAL_S

    async def _ask_all(self) -> dict[BrokerId, Introduction]:
        nodes = sorted(self._exchange.hellos)
        answers = await asyncio.gather(*(self._ask(node) for node in nodes))
        return {
            node: answer for node, answer in zip(nodes, answers, strict=True) if answer is not None
        }

    async def _ask(self, node: BrokerId) -> Introduction | None:
        try:
            answer = await self._exchange.call(node, MEET, b"", MEET_TIMEOUT_S)
            return decode_introduction(bytes(answer))
        except Refused as refused:
            logger.debug("node %d did not introduce itself: %s", node, refused.detail)
        except ValueError as error:
            logger.warning("node %d: %s", node, error)
        return None

    def _settle(self, met: Mapping[BrokerId, Introduction]) -> None:
        for introduction in met.values():
            if introduction.cluster_id:
                self._identity.set_cluster(introduction.cluster_id, introduction.founders)
                return
        if self._join is not None or not self._listed.keys() <= met.keys() | {self._node}:
            return
        self._check_lists(met)
        if self._node == min(self._listed):
            hellos = self._exchange.hellos
            others = [
                ReplicaId(node, hellos[node].directory) for node in met if node in self._listed
            ]
            # One that was there a moment ago and is gone now founds nothing.
            if len(others) + 1 == len(self._listed):
                self._found([self._own, *others])

    def _check_lists(self, met: Mapping[BrokerId, Introduction]) -> None:
        for node, introduction in sorted(met.items()):
            if node in self._listed and introduction.listed != self._listed.keys():
                theirs = ", ".join(str(number) for number in sorted(introduction.listed))
                ours = ", ".join(str(number) for number in sorted(self._listed))
                raise StartRefused(
                    f"Node {node} lists the members {theirs or 'of no cluster'}, node "
                    f"{self._node} lists {ours}: all founding nodes must list the same members."
                )

    def _found(self, founders: Sequence[ReplicaId]) -> None:
        self._identity.set_cluster(self._new_cluster_id(), sorted(founders))
        logger.info("founded cluster %s", self._identity.cluster_id)

    def _say_what_is_missing(self) -> None:
        if self._join is not None:
            logger.info("waiting for the cluster at %s", self._join)
            return
        missing = self._listed.keys() - self._exchange.hellos.keys() - {self._node}
        if missing:
            names = ", ".join(f"{node} at {self._listed[node]}" for node in sorted(missing))
            logger.info("waiting for the first contact with node %s", names)
