"""Proves that three nodes lose nothing they acknowledged, whatever happens to one of them.

Real processes under idempotent producers and a consumer group of confluent-kafka; the soaks run
the same scenarios for minutes (tests/soak).
"""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.protocol.kafka.error_codes import ErrorCode
from tests.e2e import cluster_network
from tests.e2e.cluster_disks import ImageDisk, small_disk, why_nothing_freezes
from tests.e2e.cluster_history import read_log, under_load
from tests.e2e.cluster_network import Network
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.cluster_probe import Probe
from tests.e2e.cluster_scenarios import (
    OFFSETS,
    SETTLED_WITHIN_S,
    TOPIC,
    cut_off_leader,
    cut_one_way,
    cut_power,
    fill_disk,
    freeze_leader,
    judge,
    kill_one,
    pause_leader,
    restart_each,
    run_rounds,
    three_nodes,
    three_nodes_on_disks,
)
from tests.e2e.conftest import create_topic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

# What a node waits for its disk, an election, and the search of clients for the new leader.
REPLACED_WITHIN_S = 5.0
# What a node waits for its disk, and as much again for a machine that stalls.
HEARD_WITHIN_S = 8.0
# Until what is in flight is answered and the disk was given time.
STOPS_WITHIN_S = 40.0

# One after the other: two clusters under load at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def can_cut() -> None:
    reason = cluster_network.why_not()
    if reason is not None:
        pytest.skip(f"cut networks can't be tested: {reason}")


@pytest.fixture
def network(can_cut: None) -> Iterator[Network]:
    with Network(3) as network:
        yield network


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, kill_one, rounds=3, every_s=2, seed=3)


def test_a_kill_of_all_nodes_at_once_loses_nothing(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster, under_load(cluster.bootstrap, TOPIC) as history:
        cluster.freeze_and_kill()
        cluster.start()
        history.wait_for_progress()
        judge(cluster, history)


def test_a_rolling_restart_is_seen_only_as_latency(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, restart_each, rounds=1, every_s=0, seed=1)


@pytest.mark.slow
def test_a_leader_paused_for_longer_than_an_election_does_no_harm(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, pause_leader, rounds=1, every_s=0, seed=1)


def test_a_cut_off_leader_acknowledges_nothing(tmp_path: Path, network: Network) -> None:
    with three_nodes(tmp_path, network) as cluster:
        run_rounds(cluster, cut_off_leader(network), rounds=1, every_s=0, seed=1)


@pytest.mark.slow
def test_packets_lost_one_way_stop_nobody_for_long(tmp_path: Path, network: Network) -> None:
    with three_nodes(tmp_path, network) as cluster:
        run_rounds(cluster, cut_one_way(network), rounds=2, every_s=0, seed=2)


@pytest.mark.slow
def test_a_full_disk_on_one_node_stops_nobody_else(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    node = cluster.nodes[1]
    with small_disk(node) as disk, cluster:
        cluster.create_topic(TOPIC)
        run_rounds(cluster, fill_disk(node, disk), rounds=1, every_s=0, seed=1)


@pytest.fixture(scope="module")
def can_freeze() -> None:
    reason = why_nothing_freezes()
    if reason is not None:
        pytest.skip(f"disks that hang can't be tested: {reason}")


def test_a_leader_whose_disk_hangs_is_replaced(tmp_path: Path, can_freeze: None) -> None:
    moved_s: list[float] = []
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        run_rounds(cluster, freeze_leader(disks, moved_s), rounds=2, every_s=0, seed=1)
    assert min(moved_s) < REPLACED_WITHIN_S, moved_s


@pytest.mark.slow
def test_a_power_cut_of_all_nodes_loses_nothing(tmp_path: Path, can_freeze: None) -> None:
    """Dirty pages and the journal of a real file system go with the power."""
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        run_rounds(cluster, cut_power(disks), rounds=1, every_s=0, seed=1)


@pytest.mark.slow
def test_a_node_whose_disk_hangs_stops_all_the_same(tmp_path: Path, can_freeze: None) -> None:
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        node = cluster.leader(TOPIC)
        assert node.process is not None
        with under_load(cluster.bootstrap, TOPIC) as history:
            history.wait_for_progress()
            with disks[node.number].frozen():
                history.wait_for_progress()
                node.process.send_signal(signal.SIGTERM)
                # The kernel keeps what hangs in it, and so the process, until the disk answers.
                wait_until("the end of its first thread", lambda: has_ended(node), STOPS_WITHIN_S)
                history.wait_for_progress()
            node.process.wait(STOPS_WITHIN_S)
            assert "stopped without a last checkpoint: the disk does not answer" in node.stderr()
            node.start()
            judge(cluster, history)


@pytest.mark.slow
def test_topics_are_made_while_the_disk_of_the_controller_hangs(
    tmp_path: Path, can_freeze: None
) -> None:
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        old = cluster.controller()
        others = [number for number in cluster.nodes if number != old.number]
        with disks[old.number].frozen():
            # It learns of its disk by this. It can't say what became of the change: its own copy of
            # the metadata does not get any further.
            first = AdminClient({"bootstrap.servers": cluster.bootstrap})
            first.create_topics([NewTopic("first", 1, 1)])
            wait_until(
                "another controller",
                lambda: cluster.controller(among=others) is not old,
                SETTLED_WITHIN_S,
            )
            cluster.create_topic("second", factor=1)
        cluster.wait_until_healthy(TOPIC, "second")


def test_a_sole_node_whose_disk_hangs_says_so_serves_reads_and_recovers(
    tmp_path: Path, can_freeze: None
) -> None:
    node = Broker(tmp_path / "alone")
    with ImageDisk(node.data_dir) as disk, contextlib.closing(node.start()):
        create_topic(node.bootstrap, TOPIC)
        probe = Probe(node.bootstrap, TOPIC)
        probe.send()
        probe.await_answers()
        with disk.frozen():
            began = time.monotonic()
            probe.send(3)
            probe.await_answers()
            assert time.monotonic() - began < HEARD_WITHIN_S
            assert values_in(node) == [b"probe:0"]
        # What was sent meanwhile may be there: nobody knew, and so nobody was told that it is.
        wait_until("a write", lambda: answer_to_one(probe) == ErrorCode.NONE, SETTLED_WITHIN_S)
        answers = probe.close()
        assert answers[:4] == [ErrorCode.NONE, *[ErrorCode.KAFKA_STORAGE_ERROR] * 3]
        assert values_in(node)[0] == b"probe:0"


def answer_to_one(probe: Probe) -> int:
    probe.send()
    probe.await_answers()
    return probe.error_codes[-1]


def values_in(node: Broker) -> list[bytes]:
    return [stored.value for stored in read_log(node.bootstrap, TOPIC)[0]]


def has_ended(node: ClusterNode) -> bool:
    return psutil.Process(node.pid).status() == psutil.STATUS_ZOMBIE


def test_groups_and_topics_are_the_same_on_every_node(tmp_path: Path) -> None:
    """A fresh cluster: every node answers alike, and leaders are spread."""
    with three_nodes(tmp_path) as cluster, under_load(cluster.bootstrap, TOPIC) as history:
        cluster.wait_until_healthy(TOPIC, OFFSETS)

        def are_alike_and_spread() -> bool:
            first, *others = (node.partitions(TOPIC) for node in cluster.nodes.values())
            is_spread = {view.leader for view in first.values()} == {1, 2, 3}
            return is_spread and all(other == first for other in others)

        # A node that was slow to stand for election leads what it should some seconds later.
        wait_until("equal answers and spread leaders", are_alike_and_spread, SETTLED_WITHIN_S)
        history.finish()
