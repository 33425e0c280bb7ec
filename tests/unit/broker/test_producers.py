"""Proves that producer ids are never given out twice, and that transactions are refused."""

import asyncio
from pathlib import Path

import pytest

from penstock.broker import producers as producers_module
from penstock.broker.producers import Producers
from penstock.model.errors import Reason, Refused
from tests.unit.broker.lone_leaderships import lone_leaderships
from tests.unit.broker.partition_rig import running
from tests.unit.replication.rig import (
    TOPIC,
    batch,
)
from tests.waiting import until


class Blocks:
    """Gives out blocks of three ids, after a moment or once it is let, and may fail."""

    def __init__(self) -> None:
        self.next_id = 0
        self.calls = 0
        self.fails = False
        self.held: asyncio.Event | None = None

    async def allocate_producer_ids(self) -> range:
        self.calls += 1
        if self.held is None:
            await asyncio.sleep(0.01)
        else:
            await self.held.wait()
        if self.fails:
            raise Refused(Reason.STORAGE_ERROR, "full")
        self.next_id += 3
        return range(self.next_id - 3, self.next_id)


async def test_ids_are_unique_and_blocks_are_shared_by_all_who_wait(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        blocks = Blocks()
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=blocks)
        given = await asyncio.gather(*(producers.identify(None) for _ in range(7)))
        assert sorted(identity.producer_id for identity in given) == list(range(7))
        assert {identity.epoch for identity in given} == {0}
        assert blocks.calls <= 4


async def test_a_block_is_there_before_it_is_needed(tmp_path: Path) -> None:
    """So that producers begin while the controller can't be reached, until two blocks are used."""
    async with running(tmp_path) as node:
        blocks = Blocks()
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=blocks)
        producers.prefetch()
        producers.prefetch()
        await until(lambda: producers._reserve)
        assert blocks.calls == 1
        assert (await producers.identify(None)).producer_id == 0
        await until(lambda: producers._reserve)
        blocks.fails = True
        given = [(await producers.identify(None)).producer_id for _ in range(5)]
        assert given == [1, 2, 3, 4, 5]


async def test_a_failed_allocation_is_told_and_tried_again_later(tmp_path: Path) -> None:
    """As the one refusal after which every client tries again, whatever the reason was."""
    async with running(tmp_path) as node:
        blocks = Blocks()
        blocks.fails = True
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=blocks)
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                await producers.identify(None)
            assert caught.value.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS
        blocks.fails = False
        assert (await producers.identify(None)).producer_id == 0


async def test_nobody_waits_long_for_a_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_module, "FETCH_WAIT_S", 0.01)
    async with running(tmp_path) as node:
        blocks = Blocks()
        blocks.held = asyncio.Event()
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=blocks)
        with pytest.raises(Refused) as caught:
            await producers.identify(None)
        assert caught.value.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS
        blocks.held.set()
        await until(lambda: producers._reserve)
        assert (await producers.identify(None)).producer_id == 0


async def test_a_transactional_id_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=Blocks())
        with pytest.raises(Refused) as caught:
            await producers.identify("payments")
        assert caught.value.reason is Reason.TRANSACTIONAL_ID_REFUSED


async def test_a_partition_names_its_producers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"a", b"b", producer_id=8, epoch=2, sequence=5))
        await replica.committed()
        producers = Producers(leaderships=lone_leaderships(node.partitions), cluster=Blocks())
        ((producer_id, producer),) = producers.describe(TOPIC, 0)
        assert (producer_id, producer.epoch, producer.batches[-1].last_sequence) == (8, 2, 6)
