"""A broker of a made-up cluster behind the handlers, asked through the real codec."""

import asyncio
import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from penstock.broker.quorum import QuorumView
from penstock.broker.reassignments import Moving
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Reason, Refused
from penstock.model.limits import Limits
from penstock.protocol.kafka.codec import decode, encode
from tests.unit.broker.lone_leaderships import MadeUpCluster


class MadeUpReassignments:
    """Notes what it was asked for; refuses what tests tell it to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.moving: list[Moving] = []
        self.refusals: dict[tuple[str, int], Reason] = {}

    async def reassign(
        self,
        topic: str,
        partition: int,
        replicas: Sequence[int] | None,
        *,
        can_change_factor: bool,
        wait_s: float,
    ) -> None:
        self.asked.append((topic, partition, replicas, can_change_factor))
        self._answer(topic, partition)

    async def elect(
        self, topic: str, partition: int, timeout_s: float, *, is_unclean: bool
    ) -> None:
        self.asked.append((topic, partition, timeout_s, is_unclean))
        self._answer(topic, partition)

    def current(self) -> list[Moving]:
        return self.moving

    def _answer(self, topic: str, partition: int) -> None:
        if (topic, partition) in self.refusals:
            raise Refused(self.refusals[topic, partition], "told so")


class MadeUpMembership:
    def __init__(self) -> None:
        self.removed: list[int] = []

    async def remove_broker(self, node: int) -> None:
        if node == 9:
            raise Refused(Reason.BROKER_ID_NOT_REGISTERED, "There is no broker 9.")
        self.removed.append(node)


class MadeUpQuorum:
    def __init__(self) -> None:
        self.view: QuorumView | Refused = Refused(Reason.NOT_LEADER_OR_FOLLOWER, "nobody leads")

    async def describe(self) -> QuorumView:
        if isinstance(self.view, Refused):
            raise self.view
        return self.view


class MadeUpTopics:
    """Finds topics, and makes none."""

    makes_missing = False
    partitions_per_page_max = 2_000

    def __init__(self, cluster: MadeUpCluster) -> None:
        self.find, self.find_by_id, self.all = cluster.topic, cluster.topic_by_id, cluster.topics


class World:
    def __init__(self, cluster: MadeUpCluster) -> None:
        self.cluster = cluster
        self.reassignments = MadeUpReassignments()
        self.membership = MadeUpMembership()
        self.quorum = MadeUpQuorum()
        self.services: Any = SimpleNamespace(
            topics=MadeUpTopics(cluster),
            partitions=cluster.partitions,
            leaderships=cluster.leaderships,
            reassignments=self.reassignments,
            membership=self.membership,
            quorum=self.quorum,
            clock=SimpleNamespace(now_ms=lambda: 1_000, monotonic=lambda: 1.0),
            limits=Limits(),
        )
        self.now = 0.0
        self.peer: Any = SimpleNamespace(opened_at=0.0, memory=None)

    def ask(self, api: Api, version: int, request: Any) -> Any:
        """What a client of that version reads, after both messages went over the wire; None when
        the connection ends instead."""
        return asyncio.run(self.answer(api, version, request))

    async def answer(self, api: Api, version: int, request: Any) -> Any:
        call = Call(self.services, api.key, version, "client", self.peer, self.now)
        received = api.decode(call, memoryview(encode(request, version)), 0, api.request)
        try:
            answer = api.handle(call, received)
            if inspect.isawaitable(answer):
                answer = await answer
            body = api.encode(call, received, answer)
        except Refused as refused:
            answer = api.refusal(call, received, error_code(refused))
            if answer is None:
                return None
            body = encode(answer, version)
        if isinstance(body, list):
            body = b"".join(part for part in body if isinstance(part, bytes))
        return decode(api.response, version, body)
