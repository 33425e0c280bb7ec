"""Committed offsets are read through a majority: a coordinator that was replaced gives no old ones.

Three real replicas with a coordinator each; the network between them can be cut.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.groups import coordinator as coordinator_module
from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.groups.coordinator import Coordinator
from penstock.groups.records import GroupRecord, GroupRecordCodec
from penstock.groups.settings import GroupSettings
from penstock.groups.state import GroupsState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, TopicName
from penstock.model.topic_config import TopicConfig
from penstock.replication.hosting import Host
from tests.unit.cluster.fakes import ids_from
from tests.unit.groups.consumer_rig import no_topics
from tests.unit.replication.group_rig import Group, group_of
from tests.unit.replication.rig import Node, run
from tests.waiting import until

G = GroupId("readers")
T = TopicName("t")
COMPACTED = TopicConfig(cleanup_delete=False, cleanup_compact=True)


class Coordinators:
    """One beside each replica, as on the nodes of a cluster."""

    def __init__(self, group: Group) -> None:
        self.group = group
        nodes = group.network.nodes.items()
        self.by_node = {number: self._start(node) for number, node in nodes}

    def _start(self, node: Node) -> Coordinator:
        (replica,) = node.replicas.values()
        host: Host[GroupsState, GroupRecord] = Host(
            replica=replica,
            make_state=GroupsState,
            codec=GroupRecordCodec(),
            snapshot_path=node.directory.path / "groups.snapshot",
            file_system=node.file_system,
            clock=node.clock,
            executor=node.disk,
        )
        coordinator = Coordinator(
            host=host,
            settings=GroupSettings(),
            clock=node.clock,
            new_uuid=ids_from(1),
            **no_topics(),
        )
        coordinator.start()
        return coordinator

    async def active(self, *, but: int = -1) -> int:
        """The node whose coordinator answers."""

        def found() -> list[int]:
            pairs = self.by_node.items()
            return [number for number, each in pairs if each.is_active and number != but]

        await until(lambda: bool(found()))
        return found()[0]

    async def commit(self, number: int, offset: int) -> None:
        command = CommitOffsets(group_id=G, offsets=(OffsetToCommit(T, 0, offset),))
        assert await self.by_node[number].commit(command) == [None]

    async def committed(self, number: int) -> int | None:
        (topic,) = await self.by_node[number].fetch(G, [(T, [0])])
        found = topic.offsets[0].committed
        return None if found is None else found.offset

    async def replace(self, old: int) -> int:
        """Cuts off a coordinator that stands still, so that it does not know what comes: another
        one takes over."""
        self.group.network.isolate(old)
        node = self.group.network.nodes[old]
        node.tick = lambda: None  # type: ignore[method-assign]
        return await self.active(but=old)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.by_node.values()))


@asynccontextmanager
async def coordinators(path: Path, *numbers: int) -> AsyncIterator[Coordinators]:
    async with group_of(path, *numbers, config=COMPACTED) as group:
        made = Coordinators(group)
        try:
            yield made
        finally:
            await made.close()


def test_a_coordinator_that_was_replaced_never_shows_an_old_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with coordinators(tmp_path, 1, 2, 3) as all_of_them:
            old = await all_of_them.active()
            await all_of_them.commit(old, 7)
            assert await all_of_them.committed(old) == 7
            new = await all_of_them.replace(old)
            await all_of_them.commit(new, 8)
            assert all_of_them.by_node[old].is_active
            asked = asyncio.ensure_future(all_of_them.committed(old))
            await asyncio.sleep(0)
            all_of_them.group.network.heal()
            with pytest.raises(Refused) as refused:
                await asked
            assert refused.value.reason is Reason.NOT_COORDINATOR
            assert await all_of_them.committed(new) == 8

    run(scenario)


def test_a_coordinator_that_nobody_confirms_says_so_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "READ_S_MAX", 0.05)

    async def scenario() -> None:
        async with coordinators(tmp_path, 1, 2, 3) as all_of_them:
            old = await all_of_them.active()
            await all_of_them.replace(old)
            with pytest.raises(Refused) as refused:
                await all_of_them.committed(old)
            assert refused.value.reason is Reason.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_alone_a_coordinator_needs_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with coordinators(tmp_path, 1) as alone:
            await alone.active()
            await alone.commit(1, 7)
            assert await alone.committed(1) == 7

    run(scenario)


def test_many_reads_at_once_share_what_confirms_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with coordinators(tmp_path, 1, 2, 3) as all_of_them:
            old = await all_of_them.active()
            await all_of_them.commit(old, 7)
            delivered = all_of_them.group.network.delivered
            await all_of_them.committed(old)
            before = len(delivered)
            found = await asyncio.gather(*(all_of_them.committed(old) for _ in range(100)))
            assert found == [7] * 100
            # A round is a question and an answer for each of two followers.
            assert len(delivered) - before < 20

    run(scenario)
