"""Proves that rows go where Kafka's Java producer puts them, in their order."""

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.routing import Router, StickyPartition
from penstock.spark.writing.slab import Slab, SlabTarget, slabs
from tests.unit.spark.writing.arrow_rows import arrow_batch, layout_of

BATCH_BYTES = 1000


def partition_of(key: bytes, partition_count: int) -> int:
    """Where Kafka's Java producer puts a key, by kafka-python's hash."""
    return int(murmur2(key) & 0x7FFFFFFF) % partition_count


class Topics:
    """Topics that may get partitions while somebody writes."""

    def __init__(self, **counts: int) -> None:
        self._known = dict(counts)
        self.grown: dict[str, int] = {}

    def partition_count(self, topic: str, *, refresh: bool = False) -> int:
        if refresh:
            self._known |= self.grown
        return self._known[topic]


def router(topics: Topics, topic: str | None = "orders", first: int = 0) -> Router:
    return Router(topics, topic=topic, batch_bytes=BATCH_BYTES, choose=lambda _: first)


def slab_of(batch: pa.RecordBatch, topic: str | None = "orders") -> Slab:
    (slab,) = slabs([batch], layout_of(batch, topic), SlabTarget(BATCH_BYTES), lambda: 0)
    return slab


def placed(routing: Router, slab: Slab) -> dict[tuple[str, int], list[int]]:
    """The rows of each partition, in the order in which they are sent."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for share in routing.shares(slab):
        found[tuple(share.partition)].extend(share.rows.tolist())
    return dict(found)


@pytest.mark.parametrize("partition_count", [1, 2, 7, 100])
def test_a_key_goes_where_kafkas_own_clients_put_it(partition_count: int) -> None:
    chance = random.Random(partition_count)
    keys = [chance.randbytes(chance.randrange(40)) for _ in range(500)]
    found = placed(
        router(Topics(orders=partition_count)),
        slab_of(arrow_batch(key=keys, value=[b""] * len(keys))),
    )
    for (_, partition), rows in found.items():
        assert {partition_of(keys[row], partition_count) for row in rows} == {partition}
        assert rows == sorted(rows)
    assert sum(map(len, found.values())) == len(keys)


def test_rows_of_a_key_keep_their_order_across_slabs() -> None:
    routing = router(Topics(orders=5))
    slab = slab_of(arrow_batch(key=[b"a", b"b", b"a", b"c", b"a"], value=[b""] * 5))
    first, second = placed(routing, slab), placed(routing, slab)
    assert first == second
    assert any([row for row in rows if row % 2 == 0] == [0, 2, 4] for rows in first.values())


def test_a_rows_own_partition_comes_before_its_key() -> None:
    batch = arrow_batch(key=[b"a", b"a", None], value=[b""] * 3, partition=[2, None, 1])
    found = placed(router(Topics(orders=3), first=0), slab_of(batch))
    by_key = partition_of(b"a", 3)
    assert 0 in found[("orders", 2)]
    assert 1 in found[("orders", by_key)]
    assert 2 in found[("orders", 1)]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_the_topic_lacks_is_told(partition: int) -> None:
    batch = arrow_batch(value=[b"", b""], partition=[0, partition])
    with pytest.raises(InputError) as refused:
        placed(router(Topics(orders=3)), slab_of(batch))
    assert str(refused.value) == (
        f"A row asks for partition {partition} of topic orders, whose partitions are numbered "
        "from 0 to 2."
    )


def test_a_partition_that_was_added_a_moment_ago_is_found() -> None:
    topics = Topics(orders=1)
    topics.grown = {"orders": 4}
    batch = arrow_batch(value=[b"", b""], partition=[3, 0])
    assert placed(router(topics), slab_of(batch)) == {("orders", 3): [0], ("orders", 0): [1]}


def test_rows_of_several_topics_go_by_each_topics_own_count() -> None:
    names = ["small", "large", "small", "middle"] * 50
    keys = [b"key-%d" % number for number in range(len(names))]
    counts = {"small": 1, "middle": 5, "large": 30}
    batch = arrow_batch(key=keys, value=[b""] * len(names), topic=names)
    found = placed(router(Topics(**counts), topic=None), slab_of(batch, None))
    for (topic, partition), rows in found.items():
        assert {names[row] for row in rows} == {topic}
        assert {partition_of(keys[row], counts[topic]) for row in rows} == {partition}
        assert rows == sorted(rows)
    assert sum(map(len, found.values())) == len(names)


def test_a_row_without_a_topic_is_told() -> None:
    batch = arrow_batch(value=[b"", b""], topic=["orders", None])
    with pytest.raises(InputError, match='the column "topic" is null there, and the option'):
        placed(router(Topics(orders=1), topic=None), slab_of(batch, None))


def test_more_partitions_than_sixteen_bits_are_kept_apart() -> None:
    count = 70_000
    batch = arrow_batch(value=[b"", b"", b""], partition=[count - 1, 5, count - 1])
    found = placed(router(Topics(orders=count)), slab_of(batch))
    assert found == {("orders", count - 1): [0, 2], ("orders", 5): [1]}


def test_rows_without_a_key_fill_a_record_batch_and_go_on() -> None:
    slab = slab_of(arrow_batch(value=[bytes(230)] * 40))
    assert slab.sizes()[0] * 4 < BATCH_BYTES <= slab.sizes()[0] * 5
    routing = router(Topics(orders=3), first=2)
    shares = list(routing.shares(slab))
    assert [share.partition.partition for share in shares[:4]] == [2, 0, 1, 2]
    assert {len(share.rows) for share in shares[:-1]} <= {4, 5}
    assert np.concatenate([share.rows for share in shares]).tolist() == list(range(40))


def test_the_next_slab_goes_on_where_the_last_one_stopped() -> None:
    sticky = StickyPartition(0, batch_bytes=100)
    rows = np.arange(3)
    sizes = np.array([30, 30, 30])
    assert [partition for partition, _ in sticky.runs(rows, sizes, 4)] == [0]
    again = [(partition, part.tolist()) for partition, part in sticky.runs(rows, sizes, 4)]
    assert again == [(0, [0]), (1, [1, 2])]


def test_a_row_that_fills_a_batch_exactly_is_followed_by_another_partition() -> None:
    sticky = StickyPartition(0, batch_bytes=100)
    for expected in (0, 1, 2, 0):
        runs = list(sticky.runs(np.arange(1), np.array([100]), 3))
        assert [partition for partition, _ in runs] == [expected]


def test_keys_can_be_told_to_have_no_say() -> None:
    routing = Router(
        Topics(orders=8),
        topic="orders",
        batch_bytes=BATCH_BYTES,
        choose=lambda _: 5,
        ignore_keys=True,
    )
    batch = arrow_batch(key=[b"a", b"b", b"c"], value=[b""] * 3)
    assert placed(routing, slab_of(batch)) == {("orders", 5): [0, 1, 2]}


def test_tasks_begin_at_partitions_of_their_own() -> None:
    slab = slab_of(arrow_batch(value=[b""]))
    begun = {next(iter(placed(router(Topics(orders=8), first=n), slab)))[1] for n in range(8)}
    assert begun == set(range(8))
