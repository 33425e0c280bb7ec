"""Answers whether a node's copies are in sync, so that another node may be restarted."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from penstock.broker.doors import calls
from penstock.broker.doors.desk import Desk, Method
from penstock.model.errors import Refused

# Partitions that are looked at in one turn of the event loop.
PARTITIONS_PER_TURN: Final = 500
# Names in an answer; a node that was away for long has thousands that are late.
NAMED_MAX: Final = 10


async def describe_copies(desk: Desk, _: calls.DescribeCopies) -> calls.Copies:
    """As the leaders see it, who drop a node from the in-sync set when they lose it."""
    named: list[str] = []
    count = 0
    async for name in _late(desk):
        count += 1
        if len(named) < NAMED_MAX:
            named.append(name)
    return calls.Copies(node=desk.own, late=count, named=named)


async def _late(desk: Desk) -> AsyncIterator[str]:
    if not await _holds_metadata(desk):
        yield "the cluster's metadata"
    leaderships, own = desk.services.leaderships, desk.own
    for topic in list(desk.services.topics.all()):
        for first in range(0, topic.partitions, PARTITIONS_PER_TURN):
            for view in leaderships.describe(topic, first, first + PARTITIONS_PER_TURN):
                # Without a leader, nobody knows.
                is_in_sync = view.leader >= 0 and own in view.in_sync
                if own in view.replicas and not is_in_sync:
                    yield f"{topic.name}-{view.partition}"
            await asyncio.sleep(0)


async def _holds_metadata(desk: Desk) -> bool:
    """A node without a vote there reads the metadata from the others."""
    try:
        quorum = await desk.services.quorum.describe()
    except Refused:
        return False
    voters = [one for one in quorum.members if one.is_voter and one.node == desk.own]
    return all(one.is_in_sync for one in voters)


METHODS = (Method(calls.DescribeCopies, describe_copies),)
