"""Proves that producer ids are never given out twice, and that transactions are refused."""

import asyncio
from pathlib import Path

import pytest

from penstock.broker.producers import Producers
from penstock.model.errors import Reason, Refused
from tests.unit.replication.rig import TOPIC, batch, run, running


class Blocks:
    """Gives out blocks of three ids, after a moment, and may fail once."""

    def __init__(self) -> None:
        self.next_id = 0
        self.calls = 0
        self.fails = False

    async def allocate_producer_ids(self) -> range:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise Refused(Reason.STORAGE_ERROR, "full")
        self.next_id += 3
        return range(self.next_id - 3, self.next_id)


def test_ids_are_unique_and_blocks_are_shared_by_all_who_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            blocks = Blocks()
            producers = Producers(partitions=node.partitions, cluster=blocks)
            given = await asyncio.gather(*(producers.identify(None) for _ in range(7)))
            assert sorted(identity.producer_id for identity in given) == list(range(7))
            assert {identity.epoch for identity in given} == {0}
            assert blocks.calls == 3

    run(scenario)


def test_a_failed_allocation_is_told_and_tried_again_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            blocks = Blocks()
            blocks.fails = True
            producers = Producers(partitions=node.partitions, cluster=blocks)
            outcomes = await asyncio.gather(
                *(producers.identify(None) for _ in range(2)), return_exceptions=True
            )
            assert all(isinstance(outcome, Refused) for outcome in outcomes)
            blocks.fails = False
            assert (await producers.identify(None)).producer_id == 0

    run(scenario)


def test_a_transactional_id_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            producers = Producers(partitions=node.partitions, cluster=Blocks())
            with pytest.raises(Refused) as caught:
                await producers.identify("payments")
            assert caught.value.reason is Reason.TRANSACTIONAL_ID_REFUSED

    run(scenario)


def test_a_partition_names_its_producers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica()
            replica.append(batch(b"a", b"b", producer_id=8, epoch=2, sequence=5))
            await replica.committed()
            producers = Producers(partitions=node.partitions, cluster=Blocks())
            ((producer_id, producer),) = producers.describe(TOPIC, 0)
            assert (producer_id, producer.epoch, producer.batches[-1].last_sequence) == (8, 2, 6)

    run(scenario)
