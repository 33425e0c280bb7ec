"""A node with groups on a real disk behind the group handlers, asked through the real codec."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.handlers import join_group, sync_group
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.unit.groups.driver import subscription
from tests.unit.lone_node import LoneNode, run

G = "readers"
SETTINGS = {
    "group_initial_rebalance_delay_ms": "1",
    "offsets_topic_num_partitions": "2",
    "share_coordinator_state_topic_num_partitions": "2",
}


class World:
    def __init__(self, node: LoneNode) -> None:
        self.node = node
        self.services: Any = SimpleNamespace(
            topics=node.services.topics,
            groups=node.groups,
            leaderships=node.services.leaderships,
        )
        self.peer: Any = SimpleNamespace(id=1, peer_host="127.0.0.1", peer_port=1234)

    async def ask(self, api: Api, version: int, request: Any) -> Any:
        """What a client of that version reads, after both messages went over the wire."""
        received = decode(api.request, version, encode(request, version))
        call = Call(self.services, api.key, version, "client", self.peer, 0.0)
        try:
            answer = api.handle(call, received)
            if inspect.isawaitable(answer):
                answer = await answer
        except Refused as refused:
            answer = api.refusal(call, received, error_code(refused))
        return decode(api.response, version, encode(answer, version))

    async def join(self, version: int = 9, **fields: Any) -> Any:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))]
        defaults: dict[str, Any] = {
            "group_id": G,
            # No member may be lost because the disk is slow: nobody sends heartbeats here.
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 300_000,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        request = JoinGroupRequest(**(defaults | fields))
        return await self.ask(join_group.API, version, request)

    async def enter(self, **fields: Any) -> Any:
        """Joins as today's clients do: once for an id, once with it."""
        joined = await self.join(**fields)
        if joined.member_id and joined.generation_id < 0:
            joined = await self.join(**fields | {"member_id": joined.member_id})
        assert joined.error_code == 0
        return joined

    async def sync(self, joined: Any, version: int = 5, **fields: Any) -> Any:
        request = SyncGroupRequest(
            group_id=G,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"assigned")
                for m in joined.members
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return await self.ask(sync_group.API, version, request)

    async def stable(self, **fields: Any) -> Any:
        joined = await self.enter(**fields)
        assert (await self.sync(joined)).error_code == 0
        return joined


def in_world(path: Path, test: Callable[[World], Awaitable[None]], **settings: str) -> None:
    async def body() -> None:
        node = await LoneNode.start(path, **SETTINGS | settings)
        await node.create("t", "u", partitions=2)
        # A client's first question, which makes the topic of the coordinators.
        await node.groups.find_coordinator(GroupId(G))
        try:
            await test(World(node))
        finally:
            await node.stop()

    run(body)
