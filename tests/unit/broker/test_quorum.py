"""Proves that any broker can tell of the metadata's group: its leader does, others ask it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.quorum import DESCRIBE_CALL, Member, Quorum, QuorumView
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId
from penstock.raft.membership import Membership

ONE, TWO, THREE = (ReplicaId(BrokerId(node), DirectoryId(f"d{node}")) for node in (1, 2, 3))


class Calls:
    """Brings a call to whichever broker serves it."""

    def __init__(self) -> None:
        self.served: dict[int, Any] = {}

    def of(self, node: int) -> Any:
        def serve(method: str, handler: Any) -> None:
            assert method == DESCRIBE_CALL
            self.served[node] = handler

        async def call(to: BrokerId, method: str, payload: bytes, timeout_s: float) -> Any:
            assert method == DESCRIBE_CALL
            return await self.served[to](BrokerId(node), payload)

        return SimpleNamespace(serve=serve, call=call)


def broker(calls: Calls, node: int, *, leads: bool, controller: int) -> Quorum:
    replica = SimpleNamespace(
        id=TWO,
        is_leader=leads,
        term=6,
        high_watermark=40,
        membership=Membership(frozenset({ONE, TWO}), frozenset({THREE})),
        in_sync=lambda: [1, 2],
        progress=lambda: {ONE: 38, TWO: 41},
    )
    cluster: Any = SimpleNamespace(broker_id=node, controller_id=controller)
    partitions: Any = SimpleNamespace(metadata=replica)
    return Quorum(cluster=cluster, partitions=partitions, exchange=calls.of(node))


EXPECTED = QuorumView(
    2,
    6,
    40,
    [
        Member(1, "d1", 38, True, True),
        Member(2, "d2", 41, True, True),
        Member(3, "d3", -1, False, False),
    ],
)


def test_the_leader_tells_and_others_ask_it() -> None:
    calls = Calls()
    leader = broker(calls, 2, leads=True, controller=2)
    other = broker(calls, 1, leads=False, controller=2)
    assert asyncio.run(leader.describe()) == EXPECTED
    assert asyncio.run(other.describe()) == EXPECTED


@pytest.mark.parametrize("controller", [-1, 1, 3])
def test_nobody_who_leads_can_be_asked(controller: int) -> None:
    """Unknown, just lost by this broker itself, or lost by the one that is asked."""
    calls = Calls()
    broker(calls, 3, leads=False, controller=3)
    asked = broker(calls, 1, leads=False, controller=controller)
    with pytest.raises(Refused) as caught:
        asyncio.run(asked.describe())
    assert caught.value.reason is Reason.NOT_LEADER_OR_FOLLOWER
