"""Proves that what is known about leaders never goes back."""

import asyncio

from penstock.model.ids import BrokerId, PartitionId, Term
from penstock.replication.leaders import LeaderInfo, LeaderTable
from tests.unit.replication.peers_kit import group


def info(term: int, leader: int, *in_sync: int) -> LeaderInfo:
    return LeaderInfo(Term(term), BrokerId(leader), in_sync)


def test_the_highest_term_wins() -> None:
    table = LeaderTable()
    assert table.get(group(0)) is None
    assert table.learn(group(0), info(3, 1, 1))
    assert not table.learn(group(0), info(2, 2, 2))
    assert table.get(group(0)) == info(3, 1, 1)
    assert table.learn(group(0), info(4, 2, 2))
    assert table.get(group(0)) == info(4, 2, 2)


def test_a_term_has_one_leader_whose_in_sync_set_may_change() -> None:
    table = LeaderTable()
    table.learn(group(0), info(3, 1, 1, 2))
    assert not table.learn(group(0), info(3, 2, 2))
    assert table.learn(group(0), info(3, 1, 1, 2, 3))
    assert not table.learn(group(0), info(3, 1, 1, 2, 3))
    assert table.get(group(0)) == info(3, 1, 1, 2, 3)


def test_changes_are_told_and_a_bug_of_one_listener_harms_no_other() -> None:
    table = LeaderTable()
    told: list[PartitionId] = []

    def fail(_: PartitionId) -> None:
        raise RuntimeError("a bug")

    async def learn() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        table.learn(group(0), info(1, 1))
        table.learn(group(0), info(1, 1))
        table.learn(group(1), info(1, 2))

    bugs: list[dict[str, object]] = []
    table.on_change(fail)
    table.on_change(told.append)
    asyncio.run(learn())
    assert len(bugs) == 2
    assert told == [group(0), group(1)]


def test_a_deleted_topic_is_forgotten() -> None:
    table = LeaderTable()
    table.learn(group(0), info(5, 1))
    table.forget_topic(group(0).topic_id)
    table.forget_topic(group(0).topic_id)
    assert table.get(group(0)) is None
    assert table.learn(group(0), info(1, 1))
