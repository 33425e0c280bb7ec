"""One request about several queues: it is decided in all that are open before anybody waits.

So the caller may go on, for example lease what was just given back, and wait later for everything
at once. What is decided in one turn is stored together.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias

from penstock.model.errors import Refused
from penstock.model.ids import GroupId, TopicId
from penstock.queues.leading import LedQueue
from penstock.replication.commit import Commit

Place: TypeAlias = tuple[TopicId, int]
Outcomes: TypeAlias = dict[Place, Refused | None]


class QueueDecisions:
    def __init__(
        self,
        lead: Callable[[GroupId, TopicId, int], LedQueue],
        group_id: GroupId,
        places: Iterable[Place],
        decide: Callable[[LedQueue, Place], Commit],
        *,
        confirms: bool = False,
    ) -> None:
        """Refusals are told only once it is sure that the copy was the newest one, if `confirms`
        says so."""
        self._decide = decide
        self._confirms = confirms
        self._outcomes: Outcomes = {}
        self._commits: dict[Place, Commit] = {}
        self._unopened: dict[Place, LedQueue] = {}
        self._refusing: dict[Place, LedQueue] = {}
        for place in places:
            try:
                queue = lead(group_id, *place)
            except Refused as refused:
                self._outcomes[place] = refused
                continue
            if queue.is_open:
                self._decide_in(queue, place)
            else:
                queue.open()
                self._unopened[place] = queue

    def __await__(self) -> Generator[Any, None, Outcomes]:
        return self._stored().__await__()

    async def decided(self) -> None:
        """Returns once there is nothing left to decide, at once in most cases."""
        unopened, self._unopened = self._unopened, {}
        for place, queue in unopened.items():
            try:
                await queue.open()
            except Refused as refused:
                self._outcomes[place] = refused
            else:
                self._decide_in(queue, place)

    def _decide_in(self, queue: LedQueue, place: Place) -> None:
        try:
            self._commits[place] = self._decide(queue, place)
        except Refused as refused:
            self._outcomes[place] = refused
            if self._confirms:
                self._refusing[place] = queue

    async def _stored(self) -> Outcomes:
        """For each place why it is refused, or None once it is stored."""
        await self.decided()
        outcomes = self._outcomes
        for place, commit in self._commits.items():
            try:
                await commit
                outcomes[place] = None
            except Refused as refused:
                outcomes[place] = refused
        for place, queue in self._refusing.items():
            try:
                await queue.confirm()
            except Refused as refused:
                outcomes[place] = refused
        return outcomes
