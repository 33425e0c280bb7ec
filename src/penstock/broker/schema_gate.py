"""Where batches wait that are for topics which validate the schemas of their records.

A small batch whose schemas are known passes at once. Others stand in the line of their partition,
because a batch must not overtake those before it, until their records were looked into in a worker
thread or the broker has read what is new in the registry. What judges them is imported when the
first batch comes: most brokers never have such a topic.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from penstock.broker.later import Later
from penstock.model.errors import Reason, Refused
from penstock.model.ids import PartitionId
from penstock.model.limits import KIB, MIB
from penstock.records.batch import ATTRIBUTES_POSITION, CODEC_MASK
from penstock.replication.replica import Replica

if TYPE_CHECKING:
    from penstock.broker.forwarding import Forwarding
    from penstock.broker.schema_judge import SchemaJudge
    from penstock.broker.topics import Topics
    from penstock.model.clock import Clock

# Batches that are not compressed and not larger are looked into on the loop: some 0.1 ms.
INLINE_BYTES_MAX: Final = 8 * KIB
# Of all batches that stand in lines; beyond it, more are refused for now.
WAITING_BYTES_MAX: Final = 128 * MIB
_CODEC_POSITION: Final = ATTRIBUTES_POSITION + 1
# The topic that the registry writes itself: who can't read it can't register anything either.
REGISTRY_TOPIC: Final = "_schemas"

Batches = bytes | memoryview


class Check(Later[bytes]):
    """A batch in line; settled with the batch when it may be appended, or failed."""

    __slots__ = ("batches", "replica")

    def __init__(self, replica: Replica, batches: bytes) -> None:
        super().__init__()
        self.replica = replica
        self.batches = batches


class SchemaGate:
    def __init__(self, *, make_judge: Callable[[], SchemaJudge], executor: Executor) -> None:
        """`make_judge` is called in a worker thread, once."""
        self._make_judge = make_judge
        self._executor = executor
        self._judge: SchemaJudge | None = None
        self._lines: dict[PartitionId, deque[Check]] = {}
        self._waiting_bytes = 0
        # The loop keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, replica: Replica, batches: Batches | None) -> Check | None:
        """None if they may be appended now, or if that will refuse them for another reason.

        Raises Refused. A caller that gets a check appends the batches when it is settled.
        """
        if not batches or not replica.is_leader or replica.partition.topic == REGISTRY_TOPIC:
            return None
        if (
            self._judge is not None
            and replica.key not in self._lines
            and _is_small(batches)
            and not self._judge.doubts(replica, batches)
        ):
            return None
        return self._stand_in_line(Check(replica, bytes(batches)))

    def _stand_in_line(self, check: Check) -> Check:
        size = len(check.batches)
        if self._lines and self._waiting_bytes + size > WAITING_BYTES_MAX:
            detail = f"{self._waiting_bytes} bytes wait for a look at their schemas"
            refused = Refused(Reason.THROTTLED, detail)
            raise check.replica.refuse_for_now(refused, check.batches)
        self._waiting_bytes += size
        key = check.replica.key
        line = self._lines.get(key)
        if line is not None:
            line.append(check)
        else:
            self._lines[key] = line = deque([check])
            task = asyncio.get_running_loop().create_task(self._work(key, line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return check

    async def _work(self, key: PartitionId, line: deque[Check]) -> None:
        """Judges one batch after the other until the line is empty."""
        while line:
            check = line[0]
            try:
                refused = await self._verdict(check)
            except Exception as bug:
                self._leave(key, line)
                check.fail(bug)
                continue
            # It leaves the line first: what it appends now is before all that come later.
            self._leave(key, line)
            if refused is not None:
                check.fail(refused)
            else:
                check.settle(check.batches)

    def _leave(self, key: PartitionId, line: deque[Check]) -> None:
        self._waiting_bytes -= len(line.popleft().batches)
        if not line:
            del self._lines[key]

    async def _verdict(self, check: Check) -> Refused | None:
        loop = asyncio.get_running_loop()
        replica, batches = check.replica, check.batches
        try:
            if self._judge is None:
                self._judge = await loop.run_in_executor(self._executor, self._make_judge)
            await self._judge.judge(replica, batches, self._executor)
        except Refused as refused:
            if refused.reason is Reason.NOT_ENOUGH_REPLICAS:
                return replica.refuse_for_now(refused, batches)
            return refused
        return None


def _is_small(batches: Batches) -> bool:
    return (
        _CODEC_POSITION < len(batches) <= INLINE_BYTES_MAX
        and not batches[_CODEC_POSITION] & CODEC_MASK
    )


def make_judge(topics: Topics, forwarding: Forwarding, clock: Clock) -> SchemaJudge:
    """The judge of a node. Its libraries are imported here, so this is for a worker thread."""
    from penstock.broker.known_schemas import KnownSchemas
    from penstock.broker.schema_judge import SchemaJudge

    return SchemaJudge(KnownSchemas(topics=topics, forwarding=forwarding, clock=clock))
