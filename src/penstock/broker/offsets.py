"""Where things are in a partition: by time, at its ends, by term; and moving its start."""

import asyncio

from penstock.broker.leaderships import Leaderships
from penstock.model.errors import Reason, Refused
from penstock.model.ids import Offset, TopicName
from penstock.replication.positions import FoundOffset as FoundOffset
from penstock.replication.positions import Position as Position

# For queries that old clients send, which ask for several offsets at once.
OFFSETS_MAX = 2


class Offsets:
    """The use cases that ask for positions and not for records; only the leader answers them."""

    def __init__(self, *, leaderships: Leaderships) -> None:
        self._leaderships = leaderships
        self._deletions: set[asyncio.Task[Offset]] = set()

    async def find(
        self, topic: TopicName, partition: int, timestamp: int, *, term: int = -1
    ) -> FoundOffset:
        """The first record at or after a time, or a `Position`; -1 where there is none."""
        return await self._leaderships.lead(topic, partition, term).list_offset(timestamp)

    async def find_several(
        self, topic: TopicName, partition: int, timestamp: int, count_max: int
    ) -> list[int]:
        """The oldest form of the query: offsets before a time, newest first, the start last."""
        replica = self._leaderships.lead(topic, partition)
        latest = (await replica.list_offset(Position.LATEST)).offset
        start = (await replica.list_offset(Position.EARLIEST)).offset
        if timestamp == Position.LATEST:
            found = [latest, start]
        elif timestamp == Position.EARLIEST:
            found = [start]
        else:
            at = (await replica.list_offset(timestamp)).offset
            found = [at if at >= 0 else latest, start]
        return list(dict.fromkeys(found))[: max(0, min(count_max, OFFSETS_MAX))]

    def end_of_term(
        self, topic: TopicName, partition: int, asked: int, *, term: int = -1
    ) -> tuple[int, int]:
        """The newest term not after the one asked for, and the offset at which it ended."""
        return self._leaderships.lead(topic, partition, term).end_offset_for_epoch(asked)

    async def delete_before(
        self, topic: TopicName, partition: int, offset: int, *, wait_s: float | None = None
    ) -> Offset:
        """Moves the start of a partition forward; returns where it is then.

        The time bounds the wait for other replicas: what this one does alone is waited for. A
        deletion that started goes on, no matter who waits for it.
        """
        # A node that stands alone may make room on a full disk, which cost it its leadership.
        replica = self._leaderships.replica(topic, partition)
        if not replica.config.cleanup_delete:
            detail = f"{topic} is compacted, its records can't be deleted by offset"
            raise Refused(Reason.POLICY_VIOLATION, detail)
        deletion = asyncio.get_running_loop().create_task(replica.delete_records(offset))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deleted)
        await asyncio.wait([deletion], timeout=None if replica.is_alone else wait_s)
        if not deletion.done():
            detail = f"{topic}-{partition} does not start at {offset} yet"
            raise Refused(Reason.REQUEST_TIMED_OUT, detail)
        return deletion.result()

    def _deleted(self, deletion: asyncio.Task[Offset]) -> None:
        self._deletions.discard(deletion)
        if not deletion.cancelled():
            # Nobody may be there to hear what went wrong.
            deletion.exception()
