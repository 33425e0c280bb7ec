"""Changes of queues that get lost on their way to the share coordinator, while disks are slow.

On a fast disk a poll reads and leases in one step. On a slow one the queue may have been opened
again in between, by a change that was lost: then it knows less than when the poll began to read.
"""

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from penstock.broker.queue_reads import Found, QueueReads
from penstock.broker.share_coordinators import ShareCoordinators
from penstock.model.errors import Reason, Refused
from penstock.queues.commands import RecordState
from penstock.queues.decisions import Write
from penstock.queues.reading import Needed
from penstock.replication.commit import Commit
from penstock.replication.replica import Replica

# In so many runs one change of each partition is lost that leases records for the first time, after
# so many others at most.
LOSS_CHANCE = 0.5
OTHERS_MAX = 20
# Until the leader knows that nobody heard of it, and for which reads that begin meanwhile take.
LOST_S = (0.3, 2.0)
READ_S = (0.0, 2.5)


class QueueFaults:
    def __init__(self, seed: int, *, is_on: bool) -> None:
        # Of its own, so that it changes nothing else.
        self._random = Random(f"lost changes of {seed}")
        self._is_on = is_on and self._random.random() < LOSS_CHANCE
        # By partition: how many changes are not lost, and the one that was.
        self._spared: defaultdict[int, int] = defaultdict(self._some)
        self._lost: dict[int, Write] = {}

    def _some(self) -> int:
        return self._random.randrange(OTHERS_MAX)

    @contextmanager
    def losing_changes(self) -> Iterator[None]:
        write_here, write = ShareCoordinators.write_here, ShareCoordinators.write
        read = QueueReads.read

        def loses_or_writes_here(store: ShareCoordinators, command: Write) -> Commit | None:
            self._lose_some(command)
            return None if self._is_lost(command) else write_here(store, command)

        async def loses_or_writes(store: ShareCoordinators, command: Write) -> None:
            if not self._is_lost(command):
                await write(store, command)
                return
            try:
                await asyncio.sleep(self._random.uniform(*LOST_S))
            finally:
                del self._lost[command.key.partition]
            raise Refused(Reason.REQUEST_TIMED_OUT, "it was lost on its way")

        async def reads_slowly(
            reads: QueueReads,
            replica: Replica,
            offset: int,
            bytes_max: int,
            own_copiers: Container[int],
            needed: Needed | None = None,
        ) -> Found | None:
            if replica.key.partition in self._lost:
                await asyncio.sleep(self._random.uniform(*READ_S))
            return await read(reads, replica, offset, bytes_max, own_copiers, needed)

        with (
            patch.object(ShareCoordinators, "write_here", loses_or_writes_here),
            patch.object(ShareCoordinators, "write", loses_or_writes),
            patch.object(QueueReads, "read", reads_slowly),
        ):
            yield

    def _lose_some(self, command: Write) -> None:
        partition = command.key.partition
        ranges = (each for change in command.changes for each in change.ranges)
        is_first = any(each.state is RecordState.LEASED and each.attempts == 1 for each in ranges)
        if self._is_on and is_first:
            self._spared[partition] -= 1
            if self._spared[partition] == 0:
                self._lost[partition] = command

    def _is_lost(self, command: Write) -> bool:
        return self._lost.get(command.key.partition) is command
