"""Proves that upkeep reaches every partition, finds damage, and never outlives its stop."""

import asyncio
from pathlib import Path

from penstock.broker.upkeep import CHECK_INTERVAL, CLEANER_ENABLED, PRODUCER_EXPIRY, Upkeep
from penstock.model.topic_config import TopicConfig
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import TOPIC, TOPIC_ID, batch, read_values, run


class Settings:
    def __init__(self) -> None:
        self.ints = {CHECK_INTERVAL: 20, PRODUCER_EXPIRY: 1_000}
        self.bools = {CLEANER_ENABLED: True}

    def int_setting(self, name: str) -> int:
        return self.ints[name]

    def bool_setting(self, name: str) -> bool:
        return self.bools[name]


def upkeep_of(node: Node, settings: Settings | None = None) -> Upkeep:
    return Upkeep(
        partitions=node.partitions,
        cluster=settings or Settings(),
        clock=node.clock,
        scrub_period_s=3600.0,
        first_round_s=0.01,
    )


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.01)


def test_old_segments_go_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            config = TopicConfig(segment_bytes=200, retention_bytes=400)
            await node.create(TOPIC, TOPIC_ID, range(3), config)
            upkeep = upkeep_of(node)
            upkeep.start()
            for replica in node.partitions.all():
                for _ in range(10):
                    replica.append(batch(b"x" * 100))
                    await replica.committed()
            await until(lambda: all(r.log_start_offset > 0 for r in node.partitions.all()))
            await upkeep.stop()

    run(scenario)


def test_compaction_follows_the_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            config = TopicConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=300)
            replica = await node.replica(config)
            for number in range(40):
                replica.append(batch(b"%d" % number))
                await replica.committed()
            settings = Settings()
            settings.bools[CLEANER_ENABLED] = False
            await upkeep_of(node, settings).maintain_all()
            assert len(read_values(replica)) == 40
            await upkeep_of(node).maintain_all()
            left = read_values(replica)
            assert len(left) < 20
            assert left[-1] == b"39"

    run(scenario)


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            replica = await node.replica()
            replica.append(batch(b"x", producer_id=1, epoch=0, sequence=0))
            await replica.committed()
            await upkeep_of(node).maintain_all()
            assert len(list(replica.producers())) == 1
            node.clock.ms += 1_001
            await upkeep_of(node).maintain_all()
            assert list(replica.producers()) == []

    run(scenario)


def test_a_flipped_bit_in_an_old_segment_stops_its_partition_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig(segment_bytes=200))
            damaged, sound = node.partitions.all()
            for replica in (damaged, sound):
                for _ in range(6):
                    replica.append(batch(b"x" * 100))
                    await replica.committed()
            segment = min(node.directory.partition_directory(TOPIC_ID, 0).glob("*.log"))
            content = bytearray(segment.read_bytes())
            content[-10] ^= 4
            segment.write_bytes(content)
            upkeep = upkeep_of(node)
            upkeep.start()
            await until(lambda: damaged.stopped_because is not None)
            assert segment.name in str(damaged.stopped_because)
            await upkeep.stop()
            assert sound.stopped_because is None
            assert len(read_values(sound)) == 6

    run(scenario)


def test_a_scrub_that_pauses_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.create(TOPIC, TOPIC_ID, range(3), TopicConfig(segment_bytes=200))
            for replica in node.partitions.all():
                replica.append(batch(b"x" * 100))
                await replica.committed()
            upkeep = upkeep_of(node)
            pauses: list[float] = []

            async def pause(seconds: float) -> None:
                pauses.append(seconds)
                await asyncio.Event().wait()

            upkeep._scrubbing._sleep = pause
            upkeep.start()
            await until(lambda: pauses)
            await asyncio.wait_for(upkeep.stop(), 1.0)

    run(scenario)


def test_stopping_at_once_is_quick(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.replica()
            upkeep = upkeep_of(node)
            upkeep.start()
            await upkeep.stop()
            never_started = upkeep_of(node)
            await never_started.stop()

    run(scenario)
