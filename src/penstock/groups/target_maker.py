"""Makes targets for consumer groups whose assignor may take long, in a worker thread.

Members keep the target that they have until then. If the group has changed when the assignor is
done, the assignor runs once more for what it is by then.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.groups.assignors import Assignor
from penstock.groups.catalog import TopicCatalog
from penstock.groups.modern_group import ModernGroup
from penstock.groups.records import GroupRecord
from penstock.groups.state import GroupsState
from penstock.groups.targets import TargetWork, target_records, target_work
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.replication.hosting import Host

logger = logging.getLogger(__name__)


class TargetMaker:
    def __init__(
        self,
        *,
        host: Host[GroupsState, GroupRecord],
        catalog: TopicCatalog,
        assignors: Mapping[str, Assignor],
        store: Callable[[GroupId, Sequence[GroupRecord]], asyncio.Future[None]],
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._assignors = assignors
        self._store = store
        self._under_way: dict[GroupId, asyncio.Task[None]] = {}
        # What went wrong, for the next member that asks.
        self._failures: dict[GroupId, Refused] = {}

    def need(self, group_id: GroupId) -> None:
        if group_id not in self._under_way:
            task = asyncio.get_running_loop().create_task(self._make(group_id))
            self._under_way[group_id] = task
            task.add_done_callback(lambda done: self._ended(group_id, done))

    def is_under_way(self, group_id: GroupId) -> bool:
        return group_id in self._under_way

    def raise_failure(self, group_id: GroupId) -> None:
        failure = self._failures.pop(group_id, None) if self._failures else None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        self._failures.clear()
        for task in list(self._under_way.values()):
            task.cancel()

    async def _make(self, group_id: GroupId) -> None:
        while (work := self._work(group_id)) is not None:
            try:
                targets = await asyncio.to_thread(work.assignor.assign, work.spec)
            except Refused as refused:
                self._failures[group_id] = refused
                logger.warning("group %s has no new target: %s", group_id, refused.detail)
                return
            if self._work(group_id) == work:
                group = self._due(group_id)
                assert group is not None
                self._store(group_id, [*target_records(group, targets)])
                return

    def _work(self, group_id: GroupId) -> TargetWork | None:
        group = self._due(group_id)
        return None if group is None else target_work(group, self._assignors, self._catalog)

    def _due(self, group_id: GroupId) -> ModernGroup | None:
        group = self._host.state.modern(group_id) if self._host.is_ready else None
        is_due = group is not None and group.epoch > group.target_epoch
        return group if is_due else None

    def _ended(self, group_id: GroupId, task: asyncio.Task[None]) -> None:
        if self._under_way.get(group_id) is task:
            del self._under_way[group_id]
        if not task.cancelled() and (bug := task.exception()) is not None:
            logger.error("the target of group %s could not be made", group_id, exc_info=bug)
