"""Proves with real processes that rot at the end of a log costs nothing that was acknowledged."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocol.kafka.error_codes import ErrorCode
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.cluster_rot import flip, flip_tail_bits
from tests.e2e.processes import run
from tests.e2e.wire import Wire
from tests.waiting import wait_until

TOPIC = "rot"
RECORDS = 20
VALUES = [b"record %d" % number for number in range(RECORDS)]
IN_DOUBT = "does not vote or lead"
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        cluster.wait_until_healthy(TOPIC)
        yield cluster


def produce(leader: ClusterNode, values: list[bytes]) -> None:
    """Each in a batch of its own, acknowledged before the next."""
    with Wire(leader.connect()) as wire:
        for value in values:
            assert wire.produce(TOPIC, value).error_code == ErrorCode.NONE


def consume(cluster: Cluster, count: int) -> list[bytes | None]:
    found = BY_NAME["confluent-kafka"].consume(cluster.bootstrap, TOPIC, count)
    return [message.value for message in found]


def topic_directory(node: ClusterNode) -> str:
    (directory,) = [path for path in (node.data_dir / "topics").iterdir() if path.is_dir()]
    return directory.name


def flip_last_batch(node: ClusterNode) -> None:
    assert flip_tail_bits(node.data_dir, random.Random(7), below=topic_directory(node)) == 1


def await_copies(cluster: Cluster) -> None:
    """A follower may be a few seconds behind and in sync all the same."""

    def are_equal() -> bool:
        sizes = {
            sum(
                path.stat().st_size
                for path in node.data_dir.rglob(f"{topic_directory(node)}/**/*.log")
            )
            for node in cluster.running()
        }
        return len(sizes) == 1 and 0 not in sizes

    wait_until("equal copies", are_equal, PATIENCE_S)


def await_doubt(node: ClusterNode) -> None:
    wait_until("doubt", lambda: IN_DOUBT in node.stderr(), PATIENCE_S)


def test_what_two_acknowledged_survives_a_flipped_bit_at_one_of_them(cluster: Cluster) -> None:
    """The third was away; then it and the one with the flipped bit start without the whole one."""
    leader = cluster.leader(TOPIC)
    flipped, away = (node for node in cluster.nodes.values() if node is not leader)
    produce(leader, VALUES[:-1])
    cluster.wait_until_healthy(TOPIC)
    away.kill()
    produce(leader, VALUES[-1:])
    await_copies(cluster)
    cluster.freeze_and_kill()
    flip_last_batch(flipped)
    for node in (flipped, away):
        node.launch()
    for node in (flipped, away):
        node.await_ready()
    await_doubt(flipped)
    leader.start()
    assert cluster.leader(TOPIC) is leader
    assert consume(cluster, RECORDS) == VALUES
    cluster.wait_until_healthy(TOPIC)
    produce(leader, [b"next"])
    assert consume(cluster, RECORDS + 1) == [*VALUES, b"next"]


def test_one_whole_copy_of_three_wins_by_itself(cluster: Cluster) -> None:
    produce(cluster.leader(TOPIC), VALUES)
    cluster.wait_until_healthy(TOPIC)
    await_copies(cluster)
    cluster.freeze_and_kill()
    for number in (1, 2):
        flip_last_batch(cluster.nodes[number])
    cluster.start()
    assert cluster.leader(TOPIC) is cluster.nodes[3]
    assert consume(cluster, RECORDS) == VALUES
    cluster.wait_until_healthy(TOPIC)


def test_two_copies_repaired_as_the_how_to_says_do_not_block_the_third(cluster: Cluster) -> None:
    produce(cluster.leader(TOPIC), VALUES)
    cluster.wait_until_healthy(TOPIC)
    for node in cluster.nodes.values():
        assert node.terminate() == 0
    for number in (1, 2):
        node = cluster.nodes[number]
        (segment,) = (node.data_dir / "topics" / topic_directory(node)).glob("0/*.log")
        flip(segment, segment.stat().st_size // 2)
        repaired = run("log", "repair", str(node.data_dir), "--yes")
        assert repaired.returncode == 0, repaired.stderr
    cluster.start()
    assert cluster.leader(TOPIC) is cluster.nodes[3]
    assert consume(cluster, RECORDS) == VALUES
    cluster.wait_until_healthy(TOPIC)


def test_a_partition_that_lost_something_everywhere_stops_until_it_is_given_up(
    cluster: Cluster,
) -> None:
    produce(cluster.leader(TOPIC), VALUES)
    cluster.wait_until_healthy(TOPIC)
    await_copies(cluster)
    cluster.freeze_and_kill()
    for node in cluster.nodes.values():
        flip_last_batch(node)
    cluster.start()
    for node in cluster.nodes.values():
        wait_until("a stop", lambda n=node: f"{TOPIC}-0 has no leader" in n.stderr(), PATIENCE_S)
    with Wire(cluster.nodes[1].connect()) as wire:
        answer = wire.produce(TOPIC, b"x")
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "penstock log trust" in (answer.error_message or "")

    chosen = cluster.nodes[2]
    assert chosen.terminate() == 0
    refused = run("log", "trust", str(chosen.data_dir), stdin="n\n")
    assert refused.returncode != 0
    assert f"offset {RECORDS - 1}" in refused.stderr
    assert "one record" in refused.stderr
    trusted = run("log", "trust", str(chosen.data_dir), "--yes")
    assert trusted.returncode == 0, trusted.stderr
    chosen.start()
    assert cluster.leader(TOPIC) is chosen
    assert consume(cluster, RECORDS - 1) == VALUES[:-1]
    cluster.wait_until_healthy(TOPIC)
    produce(chosen, [b"next"])
    assert consume(cluster, RECORDS) == [*VALUES[:-1], b"next"]
