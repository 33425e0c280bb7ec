"""What topics are like, remembered for a moment: most requests name the same few."""

import asyncio
from collections.abc import Callable

from penstock.broker.doors.calls import FindTopic, TopicInfo
from penstock.frontdoor.remote.broker import Broker

# Partitions that are added, and settings that change, are seen after this long.
REMEMBERED_S = 2.0
# Names that are remembered; beyond it all are forgotten.
TOPICS_MAX = 10_000


class Topics:
    def __init__(self, broker: Broker, now_s: Callable[[], float]) -> None:
        self._broker = broker
        self._now_s = now_s
        self._known: dict[str, tuple[float, TopicInfo]] = {}
        self._asking: dict[tuple[str, bool], asyncio.Task[TopicInfo]] = {}

    async def find(self, name: str, *, may_create: bool = False) -> TopicInfo:
        """Raises Refused where there is none."""
        known = self._known.get(name)
        if known is not None and self._now_s() - known[0] < REMEMBERED_S:
            return known[1]
        key = name, may_create
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(name, may_create))
            self._asking[key] = asking
            asking.add_done_callback(lambda done: self._asked(key, done))
        # Shielded: others wait for it too.
        return await asyncio.shield(asking)

    async def _ask(self, name: str, may_create: bool) -> TopicInfo:
        info = await self._broker.ask(FindTopic(name=name, may_create=may_create))
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        self._known[name] = (self._now_s(), info)
        return info

    def _asked(self, key: tuple[str, bool], done: "asyncio.Task[TopicInfo]") -> None:
        del self._asking[key]
        if not done.cancelled():
            # All who wait may have gone.
            done.exception()

    def forget(self, name: str) -> None:
        """It is not what it was."""
        self._known.pop(name, None)
