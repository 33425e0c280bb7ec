"""Waits for partitions to have the leaders that someone wants them to have."""

import asyncio
from collections.abc import Callable, Iterable

from penstock.model.ids import PartitionId, TopicId
from penstock.replication.leaders import LeaderInfo, LeaderTable

Wanted = Callable[[LeaderInfo], bool]


class LeaderWaits:
    def __init__(self, leaders: LeaderTable) -> None:
        self._leaders = leaders
        self._waiting: dict[PartitionId, list[_Wait]] = {}
        leaders.on_change(self._changed)

    async def wait(
        self,
        keys: Iterable[PartitionId],
        timeout_s: float,
        is_wanted: Wanted = lambda info: True,
    ) -> bool:
        """Whether all of them had a wanted leader in time, but for those of deleted topics."""
        wait = _Wait(is_wanted)
        for key in dict.fromkeys(keys):
            if not self._has(key, is_wanted):
                wait.missing.add(key)
                wait.keys.append(key)
                self._waiting.setdefault(key, []).append(wait)
        if not wait.missing:
            return True
        wait.done = asyncio.get_running_loop().create_future()
        try:
            done, _ = await asyncio.wait([wait.done], timeout=timeout_s)
            return bool(done)
        finally:
            self._forget(wait)

    def _has(self, key: PartitionId, is_wanted: Wanted) -> bool:
        info = self._leaders.get(key)
        return info is not None and is_wanted(info)

    def _changed(self, key: PartitionId) -> None:
        for wait in self._waiting.get(key, ()):
            if self._has(key, wait.is_wanted):
                wait.ends_for(key)

    def topic_deleted(self, topic_id: TopicId) -> None:
        """Its partitions will never have the leader that someone waits for."""
        for key, waits in self._waiting.items():
            if key.topic_id == topic_id:
                for wait in waits:
                    wait.ends_for(key)

    def _forget(self, wait: "_Wait") -> None:
        for key in wait.keys:
            left = [each for each in self._waiting[key] if each is not wait]
            if left:
                self._waiting[key] = left
            else:
                del self._waiting[key]


class _Wait:
    """Someone who waits for all of some partitions."""

    __slots__ = ("done", "is_wanted", "keys", "missing")

    def __init__(self, is_wanted: Wanted) -> None:
        self.is_wanted = is_wanted
        self.keys: list[PartitionId] = []
        self.missing: set[PartitionId] = set()
        self.done: asyncio.Future[None] | None = None

    def ends_for(self, key: PartitionId) -> None:
        self.missing.discard(key)
        if not self.missing and self.done is not None and not self.done.done():
            self.done.set_result(None)
