"""Proves that a reader that is kept hears of everything that is new, and looks at nothing else."""

import tempfile
from pathlib import Path
from uuid import UUID

from penstock.broker.fetch import FetchAnswer, FetchCall, Reading
from penstock.broker.readers import Wanted
from penstock.model.errors import Reason
from penstock.model.ids import TopicId
from penstock.model.topic_config import TopicConfig
from tests.unit.broker.partition_rig import Node, running
from tests.unit.broker.test_fetch import Consumer, contents, query, wanted, write
from tests.unit.replication.rig import TOPIC, TOPIC_ID, run

OTHER_ID = TopicId(UUID(int=77))
PARTITIONS = 3


class Kept:
    """A consumer whose reader is kept."""

    def __init__(self, node: Node) -> None:
        self.fetch = Consumer(node).fetch
        self.wanted = [wanted(0, index) for index in range(PARTITIONS)]
        self.reader = self.fetch.reader(self.wanted)

    def ask(self, wait_ms: int = 0) -> FetchCall:
        return self.fetch.fetch(Reading(self.reader, is_kept=True), query(wait_ms_max=wait_ms))

    async def get(self) -> dict[int, object]:
        """What was looked at, by partition."""
        answer: FetchAnswer = await self.ask()
        indexes = [fetched.wanted.partition for fetched in answer.partitions]
        return dict(zip(indexes, contents(answer), strict=True))

    def move(self, one: Wanted, offset: int) -> None:
        one.offset = offset
        self.reader.moved(one)


async def test_only_what_may_be_new_is_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(PARTITIONS), TopicConfig())
        kept = Kept(node)
        assert await kept.get() == {0: None, 1: None, 2: None}
        assert await kept.get() == {}
        await write(node.partitions.get(TOPIC, 1), b"news")
        # As long as its consumer has not moved on, there is something to read.
        assert await kept.get() == await kept.get() == {1: [b"news"]}
        kept.move(kept.wanted[1], 1)
        assert await kept.get() == {1: None}
        assert await kept.get() == {}
        await node.partitions.get(TOPIC, 1).delete_records(1)
        assert await kept.get() == {1: None}
        kept.move(kept.wanted[2], 9)
        assert await kept.get() == await kept.get() == {2: Reason.OFFSET_OUT_OF_RANGE}


async def test_a_long_poll_ends_with_the_first_news(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(PARTITIONS), TopicConfig())
        kept = Kept(node)
        await kept.get()
        poll = kept.ask(wait_ms=60_000)
        assert not poll.is_settled
        await write(node.partitions.get(TOPIC, 2), b"news")
        assert contents(await poll) == [[b"news"]]
        kept.reader.close()
        replicas = node.partitions.all()
        assert [len(replica._watches) for replica in replicas] == [0] * PARTITIONS


def test_a_topic_that_is_made_again_is_heard_like_the_one_before() -> None:
    async def scenario(path: Path) -> None:
        async with running(path) as node:
            await node.create(TOPIC, TOPIC_ID, range(PARTITIONS), TopicConfig())
            kept = Kept(node)
            await kept.get()
            await node.partitions.retire_topic(TOPIC_ID)
            gone = Reason.UNKNOWN_TOPIC_OR_PARTITION
            assert await kept.get() == {0: gone, 1: gone, 2: gone}
            await node.create(TOPIC, OTHER_ID, range(PARTITIONS), TopicConfig())
            assert await kept.get() == {0: None, 1: None, 2: None}
            assert await kept.get() == {}
            await write(node.partitions.get(TOPIC, 0), b"again")
            assert await kept.get() == {0: [b"again"]}

    with tempfile.TemporaryDirectory() as path:
        run(lambda: scenario(Path(path)))
