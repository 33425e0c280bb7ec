"""A host without a disk: commits into a list, and can hold back or lose writes as a disk would."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from penstock.groups.records import GroupRecord, GroupRecordCodec
from penstock.groups.state import GroupsState
from penstock.model.errors import Reason, Refused

T = TypeVar("T")


class MemoryHost:
    """Like the real one: applies at append, resolves after commit, rebuilds after a failure.

    It leads from the start, unless told otherwise.
    """

    def __init__(self, log: Sequence[tuple[bytes | None, bytes | None]] = ()) -> None:
        self.log = list(log)
        self.state = GroupsState()
        self.is_ready = False
        self.is_disk_full = False
        # While set, it leads but never gets to know its state.
        self.is_unreadable = False
        # While set, appends are applied but nothing is committed.
        self.held: asyncio.Event | None = None
        # While clear, no majority confirms that it leads.
        self.confirmed = asyncio.Event()
        self.confirmed.set()
        self.replica: Any = SimpleNamespace(
            partition="__consumer_offsets-0",
            is_leader=True,
            stopped_because=None,
            confirm=self.confirmed.wait,
        )
        self._on_ready: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._codec = GroupRecordCodec()
        self._writes: set[asyncio.Task[None]] = set()

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._on_ready.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def start(self) -> None:
        if self.replica.is_leader:
            self.win()

    def win(self) -> None:
        """The partition is led here now."""
        self.replica.is_leader = True
        if not self.is_unreadable and self.replica.stopped_because is None:
            self._rebuild()
            for callback in self._on_ready:
                callback()

    def lose(self) -> None:
        """The partition is led elsewhere now; what is not committed yet is refused."""
        self.replica.is_leader = False
        self.is_ready = False
        for callback in self._on_lost:
            callback()

    def submit(self, records: Sequence[GroupRecord]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.is_ready:
            done.set_exception(Refused(Reason.COORDINATOR_LOAD_IN_PROGRESS))
            return done
        for record in records:
            self.state.apply(record)
        write = asyncio.get_running_loop().create_task(self._write(records, done))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return done

    async def _write(self, records: Sequence[GroupRecord], done: asyncio.Future[None]) -> None:
        if self.held is not None:
            await self.held.wait()
        if not self.is_ready:
            if not done.done():
                done.set_exception(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "led elsewhere"))
            return
        if records and self.is_disk_full:
            self._rebuild()
            if not done.done():
                done.set_exception(Refused(Reason.STORAGE_ERROR, "no space left on device"))
            return
        self.log += [self._codec.encode(record) for record in records]
        if not done.done():
            done.set_result(None)

    async def decide(self, decision: Callable[[GroupsState], tuple[Sequence[GroupRecord], T]]) -> T:
        if not self.is_ready:
            self._rebuild()
        records, answer = decision(self.state)
        await self.submit(records)
        return answer

    async def read(self, look: Callable[[GroupsState], T]) -> T:
        found = await self.decide(lambda state: ((), look(state)))
        await self.confirmed.wait()
        return found

    async def close(self) -> None:
        self.is_ready = False

    def _rebuild(self) -> None:
        self.state = GroupsState()
        for key, value in self.log:
            self.state.apply(self._codec.decode(key, value))
        self.is_ready = True
