"""Queues of topics that come and go."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.unit.broker.queue_rig import TOPIC, QueueNode, leased
from tests.unit.lone_node import run


def test_a_topic_that_is_made_again_has_a_queue_of_its_own() -> None:
    async def scenario(path: Path) -> None:
        node = await QueueNode.begin(path)
        await node.send(b"a", b"b", b"c")
        assert leased(await node.poll()) == [b"a", b"b", b"c"]
        assert await node.acknowledge(0, 2) is None
        await node.services.topics.delete([node.topic_id])
        await node.create(TOPIC)
        await node.make_queues()
        await node.send(b"d", b"e")
        again = await node.poll(wait_ms_max=2_000)
        assert leased(again) == [b"d", b"e"]
        assert [each.attempt for each in again.ranges] == [1]
        await node.stop()

    with TemporaryDirectory() as path:
        run(lambda: scenario(Path(path)))
