"""Gives the leaderships of this node away before it stops, so that nobody waits for a time-out."""

import asyncio
import logging
from collections.abc import Iterable

from penstock.model.errors import Refused
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

HANDOVER_TIMEOUT_S = 3.0
_LOOK_INTERVAL_S = 0.02


async def hand_over(replicas: Iterable[Replica], timeout_s: float = HANDOVER_TIMEOUT_S) -> None:
    """Returns when another replica leads each group that has one in sync, or out of time.

    What is left then is elected again by the others: slower, and just as safe.
    """
    leaving = [replica for replica in replicas if _asked_to_leave(replica)]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while any(replica.is_leader for replica in leaving) and loop.time() < deadline:
        await asyncio.sleep(_LOOK_INTERVAL_S)
    left = sum(replica.is_leader for replica in leaving)
    if left:
        logger.warning("other nodes did not take over %d leaderships in time", left)


def _asked_to_leave(replica: Replica) -> bool:
    """Whether somebody was asked to take over."""
    own = replica.id.node
    if not replica.is_leader:
        return False
    for node in replica.in_sync():
        if node == own:
            continue
        try:
            replica.transfer(node)
        except Refused as refused:
            logger.debug("%s stays for now: %s", replica.partition, refused.detail)
        else:
            return True
    return False
