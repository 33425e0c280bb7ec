"""Bugs to inject into what makes a cluster of nodes: what runs of whole nodes must notice.

The docstring of each says which rule it breaks.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.broker.local_replicas import LocalReplicas
from penstock.cluster import deciding
from penstock.cluster.deciding import Decider
from penstock.cluster.registration import Registration
from penstock.cluster.topic import Topic
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId
from penstock.replication.hosting import Host
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add


# Metadata


@mutation("the controller appends what was decided on an old copy", (Decider, "_append_for"))
async def appends_stale_decisions(self: Decider, _: BrokerId, payload: bytes) -> bytes:
    """A decision holds only for the state that it was taken on."""
    _, records = deciding._decode_request(payload)
    return deciding._encode_answer(await self._commit(records), is_done=True)


@mutation("a node refuses by its own copy, however old it is", (Decider, "_decide_there"))
async def refuses_by_old_copy(self: Decider, controller: BrokerId, decision: Any) -> Any:
    """An answer that changes nothing is one about the present state too."""
    async with self._deciding_there:
        offset = self._feed.applied
        records, answer = decision(self._feed.state)
        if not records:
            return answer, offset
        request = deciding._encode_request(offset, records)
        call = self._exchange.call(controller, deciding.APPEND, request, deciding.CALL_TIMEOUT_S)
        end, is_done = deciding._decode_answer(await call)
        await self.catch_up(end)
    if not is_done:
        raise Refused(deciding.Reason.NOT_CONTROLLER, "again")
    return answer, end


@mutation("a hosted state answers before its records are committed", (Host, "submit"))
def answers_before_commit(self: Host[Any, Any], records: Sequence[Any]) -> asyncio.Future[None]:
    """What was answered is never taken back."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        if not self._is_ready:
            self._refuse_unready()
        self._append(records)
        done.set_result(None)
    except Refused as refused:
        done.set_exception(refused)
    return done


# Members and moves


@mutation("the metadata's group keeps the members it began with", (Registration, "_name_members"))
def metadata_members_stay(self: Registration) -> None:
    """A node that comes back with an empty disk takes its own place."""


@mutation("partitions' groups keep the members they began with", (LocalReplicas, "_name_members"))
def partition_members_stay(self: LocalReplicas, topic: Topic) -> None:
    """A leader brings its group to what the metadata wants."""


@mutation("replicas that moved away stay", (LocalReplicas, "_give_up_moved"))
async def moved_replicas_stay(self: LocalReplicas, topic: Topic) -> None:
    """What moved is gone where it was."""
